"""A bar on stderr for work that counts up; where stderr is no terminal nothing, or a line now and then."""

from __future__ import annotations

import sys
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


class _Rate(ProgressColumn):
    """How many a second, lately."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


@contextmanager
def counting(text: str, total: int | None, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar for work that counts up; call what it gives with the number of things done since the last call."""
    with _bar(text, total, quiet) as (progress, task):
        yield lambda done: progress.advance(task, done)


@contextmanager
def reporting(text: str, seconds: float = 30.0) -> Iterator[Callable[[int, int | None], None]]:
    """A bar for work of days; where stderr is no terminal, such as in the log of a cluster, a line now and then.

    Call what it gives with the number of things done since the last call, and how many there are in all, or what is
    thought of that so far; None: nobody knows.

    Args:
        text: what is done.
        seconds: between two lines.
    """
    if Console(stderr=True).is_terminal:
        with _bar(text, None, False) as (progress, task):
            yield lambda done, total: progress.update(task, advance=done, total=total)
    else:
        yield _Lines(text, seconds)


class _Lines:
    """Counts up in lines: how many are done, how many a second since the first ones were, and how long it will take."""

    def __init__(self, text: str, seconds: float) -> None:
        self._text = text
        self._seconds = seconds
        self._done = 0
        self._first: tuple[int, float] | None = None  # how many, and when; starting up is no part of the rate
        self._told = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        self._done += done
        now = time.monotonic()
        if self._first is None:
            self._first = (self._done, now)
        if now - self._told < self._seconds:
            return
        self._told = now
        said = f"{self._done:,}" if total is None else f"{self._done:,} of {total:,}"
        count, began = self._first
        if self._done > count:
            rate = (self._done - count) / (now - began)
            said += f", {rate:.1f}/s"
            if total is not None:
                said += f", {timedelta(seconds=round(max(0, total - self._done) / rate))} left"
        sys.stderr.write(f"showtell: {self._text}: {said}\n")


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
    # What is printed meanwhile is a result, and goes to stdout all the same.
    shown = Progress(*columns, console=console, transient=True, disable=hidden, redirect_stdout=False)
    with shown as progress:
        yield progress, progress.add_task(text, total=total)
