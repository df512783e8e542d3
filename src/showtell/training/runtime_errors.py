"""What torch raises when a part of the machinery of a run breaks down, in words: a process lost, photos not read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from showtell.errors import TrainingError


@contextlib.contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Inside the block such errors of torch become sentences; others stay what they are.

    Args:
        folder: of the run.

    Raises:
        TrainingError: a process of the run, or one that reads photos, has gone.
    """
    try:
        yield
    except RuntimeError as error:
        first = (str(error).splitlines() or [""])[0]
        last = folder / "last"
        kept = f"{last} is the last good checkpoint: go on with --resume." if last.exists() else "Nothing was kept yet."
        if first.startswith("DataLoader "):  # how its own messages begin; errors of photos have names of their own
            raise TrainingError(
                f"Reading photos has failed ({first.rstrip('. ')}): look at the disk and the memory of this machine, "
                f"or set data.workers=0, which reads without further processes. {kept}"
            ) from error
        if isinstance(error, torch.distributed.DistError) or "/gloo/" in first:
            why = first.rpartition("] ")[2].partition(". ")[0]
            raise TrainingError(
                f"Another process of this run was lost or no longer answers ({why}): what it said last tells why. "
                f"{kept}"
            ) from error
        raise
