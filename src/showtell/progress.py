"""A bar on stderr for work that counts up; nothing where stderr is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn


@contextmanager
def counting(text: str, total: int | None, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar for work that counts up; call what it gives with the number of things done since the last call."""
    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.advance(task, done)
