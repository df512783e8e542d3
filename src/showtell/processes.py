"""Several processes: locks of folders, and the process that prints for a run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from showtell.errors import DataError
from showtell.files import locked

LOCK_NAME = ".writing.lock"  # the file in a folder that its writer holds locked


def is_first_process() -> bool:
    """Whether this is the first process of `torchrun` or `accelerate launch`; true without them."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def lock_folder(folder: Path, activity: str, alternative: str) -> Iterator[None]:
    """Create a folder and keep others from writing to it in the block; if new and empty at the end, it is removed."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = locked(folder / LOCK_NAME)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.__enter__()
    except BlockingIOError as error:
        raise DataError(f"Another program is {activity} {folder}; wait for it, or choose {alternative}.") from error
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)
        with contextlib.suppress(OSError):  # not empty
            for path in created:
                path.rmdir()
