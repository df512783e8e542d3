"""What a person sees while a model trains: a live bar on a terminal, plain lines in a log. All on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class TrainingConsole:
    """The bar with loss, speed and time left, and lines between."""

    def __init__(self, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )

    def __enter__(self) -> TrainingConsole:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line."""
        self._console.print(text, markup=False, soft_wrap=True)

    def begin(self, steps: int, done: int) -> None:
        """Show the progress bar.

        Args:
            steps: of the run.
            done: how many of them are done.
        """
        self._task = self._progress.add_task("training", total=steps, completed=done, loss="", speed="")

    def step(self, step: int, epoch: int, loss: float, captions_per_second: float) -> None:
        """Move the bar."""
        self._progress.update(
            self._task,
            completed=step,
            description=f"epoch {epoch}",
            loss=f"loss {loss:.3f}",
            speed=f"{captions_per_second:.0f} captions/s",
        )

    def validation(self, epoch: int, epochs: int, numbers: Mapping[str, float], is_best: bool) -> None:
        """The scores of a validation."""
        scores = "  ".join(f"{name} {value:.3f}" for name, value in numbers.items())
        self.say(f"epoch {epoch}/{epochs}  {scores}{'  (best so far)' if is_best else ''}")
