"""Progress bars on stderr; where stderr is not a terminal nothing, or a line now and then."""

from __future__ import annotations

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
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from showtell.errors import notify


class _Rate(ProgressColumn):
    """Items per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


@contextmanager
def counting(text: str, total: int | None, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar; call the function that it gives with the number of items done since the last call."""
    with _bar(text, total, quiet) as (progress, task):
        yield lambda done: progress.advance(task, done)


@contextmanager
def reporting(text: str, seconds: float = 30.0) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar for long work; without a terminal, such as in the log of a cluster, a line now and then.

    Call the function that it gives with the number of items done since the last call, and the total, which may be an
    estimate, or None if it is unknown.

    Args:
        text: name of the work.
        seconds: between two lines.
    """
    if Console(stderr=True).is_terminal:
        with _bar(text, None, False) as (progress, task):
            yield lambda done, total: progress.update(task, advance=done, total=total)
    else:
        yield _Lines(text, seconds)


class _Lines:
    """Progress in lines: items done, items per second since the first call, and the time left."""

    def __init__(self, text: str, seconds: float) -> None:
        self._text = text
        self._seconds = seconds
        self._done = 0
        self._first: tuple[int, float] | None = None  # items and time; starting up does not count
        self._last_line = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        self._done += done
        now = time.monotonic()
        if self._first is None:
            self._first = (self._done, now)
        if now - self._last_line < self._seconds:
            return
        self._last_line = now
        line = f"{self._done:,}" if total is None else f"{self._done:,} of {total:,}"
        count, began = self._first
        if self._done > count:
            rate = (self._done - count) / (now - began)
            line += f", {rate:.1f}/s"
            if total is not None:
                line += f", {timedelta(seconds=round(max(0, total - self._done) / rate))} left"
        notify(f"{self._text}: {line}")


_shown: list[Progress] = []  # bars that are open, each inside the one before


@contextmanager
def _bar(text: str, total: int | None, quiet: bool) -> Iterator[tuple[Progress, TaskID]]:
    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    hidden = quiet or not console.is_terminal
    # Results may be printed to stdout while the bar is shown.
    bar = Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False)
    around = _shown[-1] if _shown else None
    _shown.append(bar)
    if around is not None:  # a terminal shows one: the innermost
        around.stop()
    try:
        with bar as progress:
            yield progress, progress.add_task(text, total=total)
    finally:
        _shown.remove(bar)
        if around is not None:
            around.start()
