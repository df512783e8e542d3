"""The progress of training on stderr: a live bar on a terminal, plain lines in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TextColumn

from showtell.progress import ProgressLines, bar_columns, counting


class TrainingConsole:
    """The bar with loss, speed and time left, shown inside `with console.bar`, and lines between."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        columns = [TextColumn("{task.description}"), *bar_columns(self._console), TextColumn("{task.fields[loss]}")]
        columns += [TextColumn("{task.fields[speed]}")] if self._console.width >= 70 else []
        self._is_live = not quiet and self._console.is_terminal
        self.bar = Progress(*columns, console=self._console, disable=not self._is_live)
        self._lines: ProgressLines | None = None

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def begin(self, steps: int, done: int) -> None:
        """Show the progress of the run's steps, of which some may be done."""
        self._task = self.bar.add_task("training", total=steps, completed=done, loss="", speed="")
        if not (self._quiet or self._is_live):
            self._lines = ProgressLines("training", steps, done=done)

    @contextmanager
    def counting(self, text: str, total: int) -> Iterator[Callable[[int], None]]:
        """Progress of what interrupts the steps; call the function that it gives with the items done since the last."""
        if self._is_live:  # a terminal has one live display
            task = self.bar.add_task(text, total=total, loss="", speed="")
            yield lambda done: self.bar.advance(task, done)
            self.bar.remove_task(task)
        else:
            with counting(text, total, self._quiet) as progress:
                yield progress

    def step(self, step: int, epoch: int, loss: float, captions_per_second: float) -> None:
        """Move the bar by a step."""
        title, shown, speed = f"epoch {epoch}", f"loss {loss:.3f}", f"{captions_per_second:.0f} captions/s"
        self.bar.update(self._task, completed=step, description=title, loss=shown, speed=speed)
        if self._lines is not None:
            self._lines.detail = f"{title}, {shown}, {speed}"
            self._lines.advance(1)
