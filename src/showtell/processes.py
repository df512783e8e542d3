"""Several processes: locks of folders, the process that prints for a run, and worker processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from showtell.errors import DataError
from showtell.files import locked

LOCK_NAME = ".writing.lock"  # the file in a folder that its writer holds locked


def is_first_process() -> bool:
    """Whether this is the first process of `torchrun` or `accelerate launch`; true without them."""
    return os.environ.get("RANK", "0") == "0"


@contextlib.contextmanager
def lock_folder(folder: Path, activity: str, alternative: str) -> Iterator[None]:
    """Create a folder and keep other processes from writing to it while the block runs.

    A folder that was created here and is still empty at the end is removed. The message has what the other process is
    doing ("training in") and what to choose instead ("another --out").

    Raises:
        DataError: another process holds the lock, or the folder cannot be written to.
    """
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


@contextlib.contextmanager
def worker_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of worker processes that ends with the block, and with this process, even if that is killed.

    If the block raises, the workers are stopped in the middle of their tasks. Processes are spawned: a forked child of
    a process that has threads (torch has) may hang.
    """
    # A signal may end this process before it gives its semaphores back: multiprocessing does that then, without a word.
    sys.warnoptions.append("ignore::UserWarning:multiprocessing.resource_tracker")
    context = multiprocessing.get_context("spawn")
    watched, kept = context.Pipe(duplex=False)
    with watched, kept, ProcessPoolExecutor(processes, context, _exit_when_closed, (watched,)) as pool:
        try:
            yield pool
        except BaseException:
            kept.close()
            raise


def _exit_when_closed(pipe: Connection) -> None:
    """End this worker process as soon as the other end of a pipe, which its parent alone holds, is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which closes the pipe

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
