"""Progress on stderr: a bar on a terminal; elsewhere, as in the log of a cluster, a line every 20 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache

from rich import progress as rich_progress
from rich.console import Console

from showtell.errors import notify

SECONDS = 20  # between two lines


@cache
def _console() -> Console:
    """One for all bars: it draws those that are open below each other."""
    return Console(stderr=True)


@contextmanager
def counting(text: str, total: int | None = None, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """Gives a function to call with the items done since the last call, and with the total where it has changed."""
    console = _console()
    if quiet:
        yield lambda done, total=None: None
        return
    if not console.is_terminal:
        yield ProgressLines(text, total).advance
        return
    text_column = rich_progress.TextColumn("{task.description}")
    columns = rich_progress.SpinnerColumn(), text_column, *bar_columns(console)
    # Results are printed meanwhile.
    bar = rich_progress.Progress(*columns, console=console, transient=True, redirect_stdout=False)
    task = bar.add_task(text, total=total)
    with bar:
        yield lambda done, total=None: bar.update(task, advance=done, total=total)  # None leaves it


def bar_columns(console: Console) -> list[rich_progress.ProgressColumn]:
    """Columns for the number of items done and the time left, with a bar if the terminal is wide enough."""
    bar = [rich_progress.BarColumn()] if console.width >= 70 else []
    return [*bar, rich_progress.MofNCompleteColumn(), rich_progress.TimeRemainingColumn(compact=True)]


class ProgressLines:
    """Progress in lines: items done, `done` before the first call, items per second since then, and the time left."""

    def __init__(self, text: str, total: int | None, *, done: int = 0) -> None:
        self.detail = ""  # of the last item, in place of the items per second
        self._progress = rich_progress.Progress(
            disable=True, speed_estimate_period=float("inf"), get_time=time.monotonic
        )
        self._task = self._progress.add_task(text, total=total, completed=done)
        self._next_line = time.monotonic() + SECONDS

    def advance(self, done: int, total: int | None = None) -> None:
        """Count the items done since the last call; a total takes the place of the one before."""
        self._progress.update(self._task, advance=done, total=total)
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + SECONDS
            notify(self.describe())

    def describe(self) -> str:
        """The line of this moment."""
        (task,) = self._progress.tasks
        parts = [f"{task.completed:,.0f}" + ("" if task.total is None else f" of {task.total:,.0f}")]
        parts += filter(None, [self.detail or (f"{task.speed:.1f}/s" if task.speed else "")])
        if task.time_remaining is not None:
            parts.append(f"{timedelta(seconds=task.time_remaining)} left")
        return f"{task.description}: {', '.join(parts)}"
