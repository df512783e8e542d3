"""Progress on stderr: a bar on a terminal; elsewhere, as in the log of a cluster, a line every 20 seconds.

Of nested works the innermost is shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from showtell.errors import UsageError, notify

VARIABLE = "SHOWTELL_PROGRESS_SECONDS"  # between two lines, 20 if it is not set

_bars: list[Progress] = []  # those that are open, each inside the one before; a terminal shows the last


@contextmanager
def counting(text: str, total: int | None = None, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Progress of a number of items, None if it is unknown.

    Call the function that it gives with the number of items done since the last call, and the total if it has changed.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda done, total=None: None
        return
    if not console.is_terminal:
        with ProgressLines(text, total) as lines:
            yield lines.advance
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar_columns(console))
    bar = Progress(*columns, console=console, transient=True, redirect_stdout=False)  # results are printed meanwhile
    task = bar.add_task(text, total=total)
    if _bars:
        _bars[-1].stop()
    _bars.append(bar)
    try:
        with bar:
            yield lambda done, total=None: bar.update(task, advance=done, total=total)  # None leaves it
    finally:
        _bars.remove(bar)
        if _bars:
            _bars[-1].start()


def bar_columns(console: Console) -> list[ProgressColumn]:
    """Columns for the number of items done and the time left, with a bar if the terminal is wide enough."""
    return [*([BarColumn()] if console.width >= 70 else []), MofNCompleteColumn(), TimeRemainingColumn(compact=True)]


class ProgressLines:
    """Progress in lines, inside the block: items done, items per second since the first of them, and the time left.

    Args:
        text: name of the work.
        total: number of items; None if it is unknown.
        done: of them, before the first call.
    """

    _open: list[ProgressLines] = []  # noqa: RUF012 - of this program, the innermost last

    def __init__(self, text: str, total: int | None, *, done: int = 0) -> None:
        self.detail = ""  # of the last item, in place of the items per second
        self._progress = Progress(disable=True, speed_estimate_period=float("inf"), get_time=time.monotonic)
        self._task = self._progress.add_task(text, total=total, completed=done)
        self._seconds = _seconds_between_lines()
        self._has_ended = threading.Event()

    def __enter__(self) -> ProgressLines:
        self._open.append(self)
        threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        self._open.remove(self)

    def advance(self, done: int, total: int | None = None) -> None:
        """Count the items done since the last call; a total takes the place of the one before."""
        self._progress.update(self._task, advance=done, total=total)

    def _print_lines(self) -> None:
        while not self._has_ended.wait(self._seconds):
            if self._open[-1:] == [self]:
                notify(self.describe())

    def describe(self) -> str:
        """The line of this moment."""
        (task,) = self._progress.tasks
        parts = [f"{task.completed:,.0f}" + ("" if task.total is None else f" of {task.total:,.0f}")]
        parts += filter(None, [self.detail or (f"{task.speed:.1f}/s" if task.speed else "")])
        if task.time_remaining is not None:
            parts.append(f"{timedelta(seconds=task.time_remaining)} left")
        elif not task.speed:
            parts.append(f"{timedelta(seconds=round(task.elapsed or 0))} so far")
        return f"{task.description}: {', '.join(parts)}"


def _seconds_between_lines() -> float:
    value = os.environ.get(VARIABLE, "20")
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise UsageError(f'{VARIABLE} should be a number of seconds above 0, and is "{value}"; unset it.')
    return seconds
