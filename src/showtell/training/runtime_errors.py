"""Errors of the machinery of a run as sentences: a process lost, photos not read, a disk full."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import torch

from showtell.errors import DataError, TrainingError


@contextlib.contextmanager
def translate_errors(folder: Path) -> Iterator[None]:
    """Inside the block, errors of a lost process or a full disk become sentences; others stay what they are."""
    show_thread_error = threading.excepthook

    def show_unless_tensorboard(error: threading.ExceptHookArgs) -> None:
        if not type(error.thread).__module__.startswith("tensorboard."):  # whose next number raises the error again
            show_thread_error(error)

    threading.excepthook = show_unless_tensorboard
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise DataError(
            f"Cannot write to {folder}: {error.strerror or error}; make room, then resume with --resume."
        ) from error
    except RuntimeError as error:
        first, last = (str(error).splitlines() or [""])[0], folder / "last"
        kept = f"{last} is the last good checkpoint: add --resume." if last.exists() else "Nothing was kept yet."
        if first.startswith("DataLoader "):  # how its own messages begin; errors of photos have names of their own
            raise TrainingError(
                f"Reading photos has failed ({first.rstrip('. ')}): look at the disk and the memory of this machine, "
                f"or set data.workers=0, which reads without further processes. {kept}"
            ) from error
        if isinstance(error, torch.distributed.DistError) or "/gloo/" in first:
            why = first.rpartition("] ")[2].partition(". ")[0]
            raise TrainingError(
                f"Another process of this run was lost or no longer answers ({why}): its last message tells why. {kept}"
            ) from error
        raise
    finally:
        threading.excepthook = show_thread_error
