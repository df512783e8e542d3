"""Progress on stderr: a bar on a terminal; elsewhere, as in the log of a cluster, a line at least every 20 seconds.

Lines do not wait for an item to end. Of works within each other the innermost one is told.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

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

SECONDS = 20.0  # between two lines, unless the variable has another number
VARIABLE = "SHOWTELL_PROGRESS_SECONDS"


class _Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


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


@contextmanager
def reporting(
    text: str, seconds: float | None = None, *, total: int | None = None, quiet: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Progress of long work.

    Call the function that it gives with the number of items done since the last call, and the total, which may be an
    estimate, or None if it is unknown.

    Args:
        text: name of the work.
        seconds: between two lines; None is what SHOWTELL_PROGRESS_SECONDS says, or 20.
        total: number of items, where it is known before the first.
        quiet: show nothing.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda done, total: None
    elif console.is_terminal:
        columns = (
            (0, SpinnerColumn()), (0, TextColumn("{task.description}")), (70, BarColumn()), (0, MofNCompleteColumn()),
            (50, _Rate()), (0, TimeLeft()),
        )  # fmt: skip
        # Results may be printed to stdout while the bar is shown.
        bar = Progress(*fitting(console, columns), console=console, transient=True, redirect_stdout=False)
        with _in_place_of_others(bar):
            task = bar.add_task(text, total=total)
            yield lambda done, total: bar.update(task, advance=done, total=total)
    else:
        with ProgressLines(text, total, seconds=seconds) as lines:
            yield lines.advance


_shown: list[Progress] = []  # bars that are open, each inside the one before


@contextmanager
def _in_place_of_others(bar: Progress) -> Iterator[None]:
    """Show a bar, and meanwhile not the one around it: a terminal has a place for one."""
    around = _shown[-1] if _shown else None
    if around is not None:
        around.stop()
    _shown.append(bar)
    try:
        with bar:
            yield
    finally:
        _shown.remove(bar)
        if around is not None:
            around.start()


@contextmanager
def working(text: str) -> Iterator[None]:
    """Work of which nothing is counted: without a terminal, lines with the time that it has taken so far."""
    if Console(stderr=True).is_terminal:
        yield
    else:
        with ProgressLines(text, None):
            yield


class ProgressLines:
    """Progress in lines: items done, items per second since the first of them, and the time left.

    Inside the block a line comes with an item, or between two items if the next one takes longer than that.

    Args:
        text: name of the work.
        total: number of items; None if it is unknown.
        done: of them, before the first call.
        seconds: between two lines; None is what SHOWTELL_PROGRESS_SECONDS says, or 20.
    """

    _lock = threading.RLock()
    _at_work: list[ProgressLines] = []  # noqa: RUF012 - of this program, the innermost last
    _last_line = 0.0  # when one of them was printed

    def __init__(self, text: str, total: int | None, *, done: int = 0, seconds: float | None = None) -> None:
        self.detail = ""  # of the last item, in place of the items per second
        self._text = text
        self._total = total
        self._done = done
        self._seconds = _seconds_between_lines() if seconds is None else seconds
        self._first: tuple[int, float] | None = None  # items and time; starting up does not count
        self._has_ended = threading.Event()

    def __enter__(self) -> ProgressLines:
        self._began = time.monotonic()
        with self._lock:
            if not self._at_work:
                ProgressLines._last_line = self._began
            self._at_work.append(self)
        threading.Thread(target=self._print_between_items, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_ended.set()
        with self._lock:
            self._at_work.remove(self)

    def advance(self, done: int, total: int | None) -> None:
        """Count items.

        Args:
            done: since the last call.
            total: number of items; None if it is unknown.
        """
        with self._lock:
            self._done += done
            self._total = total
            if self._first is None:
                self._first = (self._done, time.monotonic())
            self._print_if_due()

    def _print_between_items(self) -> None:
        while not self._has_ended.wait(self._print_if_due()):
            pass

    def _print_if_due(self) -> float:
        """Print a line if it is time for one; returns the seconds until the next one is due."""
        with self._lock:
            now = time.monotonic()
            due = ProgressLines._last_line + self._seconds
            if now < due or self._at_work[-1:] != [self]:
                return max(due - now, min(1.0, self._seconds))
            ProgressLines._last_line = now
            notify(f"{self._text}: {self._describe(now)}")
            return self._seconds

    def _describe(self, now: float) -> str:
        count, began = self._first or (self._done, now)
        items = f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"
        parts = [items] if self._done or self._total is not None else []
        parts += [self.detail] if self.detail else []
        if self._first is None:
            parts.append(f"{timedelta(seconds=round(now - self._began))} so far")
        if self._done > count:
            rate = (self._done - count) / (now - began)
            parts += [] if self.detail else [f"{rate:.1f}/s"]
            if self._total is not None:
                parts.append(f"{timedelta(seconds=round(max(0, self._total - self._done) / rate))} left")
        return ", ".join(parts)


def _seconds_between_lines() -> float:
    """What the variable says, or 20.

    Raises:
        UsageError: it says something else than a number above 0.
    """
    value = os.environ.get(VARIABLE)
    try:
        seconds = SECONDS if value is None else float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise UsageError(f'{VARIABLE} should be a number of seconds above 0, and is "{value}"; unset it.')
    return seconds
