"""Progress on stderr: a bar on a terminal; elsewhere, as in the log of a cluster, a line every 20 seconds.

Of works within each other the innermost is shown.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from showtell.errors import UsageError, notify

VARIABLE = "SHOWTELL_PROGRESS_SECONDS"  # between two lines, 20 if it is not set


class TimeLeft(TimeRemainingColumn):
    """The time left, such as "2:13 left"; nothing where nobody knows."""

    def __init__(self) -> None:
        super().__init__(compact=True)

    def render(self, task: Task) -> Text:
        """The text of a task."""
        left = super().render(task).plain
        return Text(f"{left.removeprefix('0')} left" if left.strip("-:") else "", style="progress.remaining")


def fitting(console: Console, columns: Sequence[tuple[int, ProgressColumn]]) -> list[ProgressColumn]:
    """The columns of a bar that a terminal has room for: each with the width from which on it is shown."""
    return [column for width, column in columns if console.width >= width]


@contextmanager
def counting(text: str, total: int | None, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Progress of a known number of items; call the function that it gives with those done since the last call."""
    with reporting(text, total=total, quiet=quiet) as report:
        yield lambda done: report(done, total)


_bars: list[Progress] = []  # those that are open, each inside the one before; a terminal shows the last


@contextmanager
def reporting(
    text: str, *, total: int | None = None, quiet: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Progress of long work.

    Call the function that it gives with the number of items done since the last call, and the total, which may be an
    estimate, or None if it is unknown.
    """
    console = Console(stderr=True)
    with ExitStack() as stack:
        if quiet:
            yield lambda done, total: None
        elif not console.is_terminal:
            yield stack.enter_context(ProgressLines(text, total)).advance
        else:
            columns = (
                (0, SpinnerColumn()), (0, TextColumn("{task.description}")), (70, BarColumn()),
                (0, MofNCompleteColumn()), (0, TimeLeft()),
            )  # fmt: skip
            if _bars:
                _bars[-1].stop()
                stack.callback(_bars[-1].start)
            # Results may be printed to stdout while the bar is shown.
            bar = Progress(*fitting(console, columns), console=console, transient=True, redirect_stdout=False)
            _bars.append(stack.enter_context(bar))
            stack.callback(_bars.remove, bar)
            task = bar.add_task(text, total=total)
            yield lambda done, total: bar.update(task, advance=done, total=total)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Work of which nothing is counted: without a terminal, lines with the time that it has taken so far."""
    if Console(stderr=True).is_terminal:
        yield
    else:
        with ProgressLines(text, None):
            yield


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
        self._text, self._total, self._done = text, total, done
        self._first: tuple[int, float] | None = None  # items and time; starting up does not count
        self._seconds = _seconds_between_lines()
        self._has_ended = threading.Event()

    def __enter__(self) -> ProgressLines:
        self._began = time.monotonic()
        self._open.append(self)
        if self._open[0] is self:  # whose thread speaks for those inside it
            threading.Thread(target=self._print_lines, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._has_ended.set()
        self._open.remove(self)

    def advance(self, done: int, total: int | None) -> None:
        """Count items: those done since the last call, and how many there are; None if that is unknown."""
        self._done += done
        self._total = total
        self._first = self._first or (self._done, time.monotonic())

    def _print_lines(self) -> None:
        while not self._has_ended.wait(self._seconds):
            notify((self._open or [self])[-1].describe(time.monotonic()))

    def describe(self, now: float) -> str:
        """The line at a time of `time.monotonic()`."""
        count, began = self._first or (self._done, now)
        items = f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"
        parts = [items] if self._done or self._total is not None else []
        parts += [self.detail] if self.detail else []
        if self._first is None:
            parts.append(f"{timedelta(seconds=round(now - self._began))} so far")
        if self._done > count and now > began:
            rate = (self._done - count) / (now - began)
            parts += [] if self.detail else [f"{rate:.1f}/s"]
            if self._total is not None:
                parts.append(f"{timedelta(seconds=round(max(0, self._total - self._done) / rate))} left")
        return f"{self._text}: {', '.join(parts)}"


def _seconds_between_lines() -> float:
    """What the variable says, or 20.

    Raises:
        UsageError: it says something else than a number above 0.
    """
    value = os.environ.get(VARIABLE, "20")
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise UsageError(f'{VARIABLE} should be a number of seconds above 0, and is "{value}"; unset it.')
    return seconds
