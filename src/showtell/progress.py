"""A bar on stderr for work that counts up; nothing where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


class _Rate(ProgressColumn):
    """How many a second, lately."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f}/s", style="progress.data.speed")


@contextmanager
def counting(text: str, total: int | None, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar for work that counts up; call what it gives with the number of things done since the last call."""
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
        task = progress.add_task(text, total=total)
        yield lambda done: progress.advance(task, done)
