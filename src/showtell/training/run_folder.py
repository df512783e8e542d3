"""The folder of a run: who may write it, and its log.

recipe.yaml     as resolved
log.jsonl       a line for each `training.log_every` steps and each validation
last/           a checkpoint, and in training/ what is needed to resume from it
best/           the checkpoint that captioned the validation split best
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from showtell.config import differences, flat
from showtell.errors import DataError, RecipeError, UsageError, summarise
from showtell.files import read_bytes, recover_folder, write_bytes, write_whole
from showtell.training.recipe import Recipe
from showtell.training.recipe_loading import load_recipe
from showtell.training.schedule import DECAYS_OVER_THE_RUN

RECIPE, LOG = "recipe.yaml", "log.jsonl"
MAY_CHANGE = (  # in a run that is resumed
    "data.path", "data.features", "data.workers", "data.memory_megabytes",
    "training.recipe", "training.save_every", "training.trackers",
)  # fmt: skip


class RunFolder:
    """The files of a run and its log; `writes` says whether this process is the one that writes them."""

    def __init__(self, path: Path, *, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.best, self.last = path / "best", path / "last"
        self._recipe, self._log_path = path / RECIPE, path / LOG

    def claim(self, recipe: Recipe, *, resume: bool) -> bool:
        """Whether there is a run to resume; a UsageError or RecipeError if another's files would be overwritten."""
        self.recipe = recipe
        if links := sorted(path.name for path in self.path.glob("*") if path.is_symlink()):
            raise UsageError(
                f"{self.path} holds links ({summarise(links)}), and a run writes through none; put the files "
                "themselves there, or choose another --out."
            )
        for checkpoint in (self.last, self.best):
            recover_folder(checkpoint)
        exists = any(path.exists() for path in (self._recipe, self.last, self.best, self._log_path))
        if exists and not resume:
            raise UsageError(
                f"{self.path} already holds a run; add --resume (in Python resume=True) to resume it, or choose "
                "another --out."
            )
        if not exists and (others := sorted(path.name for path in self.path.glob("[!.]*"))):
            raise UsageError(
                f"{self.path} holds {summarise(others)} and no run; choose a new folder, or an empty one, with --out."
            )
        if not self.last.exists():  # a run writes it before its first line of the log and before best/
            if self.best.exists() or (self._log_path.exists() and self._log_path.stat().st_size):
                onward = f", with training.start_from={self.best} to train on" if self.best.exists() else ""
                raise UsageError(
                    f"{self.last} is gone, so there is nothing to resume from, and training from the beginning would "
                    f"replace what {self.path} still holds; choose another --out{onward}."
                )
            return False
        if self._recipe.exists():
            self.require_same(load_recipe(self._recipe))
        return True

    def require_same(self, before: Recipe) -> None:
        """Raise a RecipeError if the run began with another recipe than the present one."""
        if changed := changes(before, self.recipe):
            raise RecipeError(
                f"The run in {self.path} began with another recipe: {summarise(changed)}; resume with the old "
                f"values, or train on from its weights with --out ANOTHER training.start_from={self.best}."
            )

    def begin(self, recipe: Recipe) -> None:
        """Create the folder, with the recipe in it."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.writes:
            recipe.save(self._recipe)

    @contextlib.contextmanager
    def logging(self, known: int) -> Iterator[None]:
        """Keep the log open, cut back to as many bytes as the checkpoint knew of it."""
        path = self._log_path if self.writes else Path(os.devnull)
        if self.writes and path.exists():
            if path.stat().st_nlink > 1:  # a copy of the run shares it
                write_bytes(path, read_bytes(path))
            os.truncate(path, min(known, path.stat().st_size))
        with path.open("ab", buffering=0) as self._stream:  # for whoever follows it
            yield

    def log(self, line: Mapping[str, Any]) -> None:
        """Add a line to the log; a DataError if there is no room for it."""
        try:
            write_whole(self._stream, json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
        except OSError as error:
            raise DataError(
                f"Cannot write {self._log_path}: {error.strerror or error}; make room, then resume with --resume."
            ) from error

    def sync_log(self) -> int:
        """Flush the log to the disk; returns its size in bytes."""
        os.fsync(self._stream.fileno())
        return self._stream.tell()


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run."""
    return (path / RECIPE).is_file()


def changes(before: Recipe, now: Recipe) -> list[str]:
    """The keys in which two recipes of one run differ, with both values; those that a run may change are left out."""
    old, new = (flat(recipe.model_dump(mode="json")) for recipe in (before, now))
    return [
        f"{key} (was {was!r}, now {is_now!r})"
        for key, (was, is_now) in differences(old, new).items()
        if key not in MAY_CHANGE and not _is_longer(now, key, was, is_now)
    ]


def _is_longer(recipe: Recipe, key: str, old: Any, new: Any) -> bool:
    """Whether a change trains a run for longer and leaves everything before its former end as it was."""
    if key == "training.epochs":
        return new > old and recipe.training.schedule not in DECAYS_OVER_THE_RUN
    return key in ("training.patience", "training.patience_steps") and (new is None or (old is not None and new > old))
