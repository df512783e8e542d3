"""The environment of a run: devices, processes, precision, signals and the errors of its machinery."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import TensorBoardTracker, get_available_trackers
from accelerate.utils import parse_flag_from_env

from showtell.errors import DataError, RecipeError, TrainingError
from showtell.models import Capability
from showtell.models.kernels import can_round_products
from showtell.training.recipe import Recipe


def rounds_products(recipe: Recipe) -> bool:
    """Whether bf16 only rounds factors of products: on a processor, for recurrent steps, it is faster than autocast."""
    on_processor = not torch.accelerator.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU")
    is_stepwise = Capability.PARALLEL not in recipe.model.capabilities
    return recipe.training.mixed_precision == "bf16" and on_processor and is_stepwise and can_round_products()


def make_accelerator(recipe: Recipe, folder: Path) -> Accelerator:
    """Devices, processes, precision and trackers of a run; a RecipeError if a tracker is unknown or not installed."""
    available = [str(tracker) for tracker in get_available_trackers()]
    names = recipe.training.trackers
    for name in names:
        if name not in available:
            raise RecipeError(
                f"training.trackers: {name} is not installed, or not known to accelerate; available here are "
                f"{', '.join(available)}: install its package, or leave it out."
            )
    AcceleratorState._reset_state()  # an earlier run of this program may have had another precision
    return Accelerator(
        mixed_precision="no" if rounds_products(recipe) else recipe.training.mixed_precision,
        cpu=not torch.accelerator.is_available(),  # accelerate wants to be told before it lets processes work together
        log_with=[TensorBoardTracker(name, str(folder)) if name == "tensorboard" else name for name in names] or None,
        project_dir=str(folder),
    )


def wait_for_hours(accelerator: Accelerator) -> None:
    """Wait for the first process longer than torch waits by default, which takes half an hour for a failure."""
    if accelerator.num_processes > 1:
        group: Any = torch.distributed.new_group(timeout=timedelta(days=7), backend="gloo")
        torch.distributed.barrier(group)
        torch.distributed.destroy_process_group(group)


class Interrupts:
    """Inside the block, the first Ctrl-C or SIGTERM asks to stop, which `say` tells; a second of its kind kills."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False  # whether this process was asked to stop
        self._say = say
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        with contextlib.suppress(ValueError):  # not the main thread: somebody else handles signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if os.getpid() == self._process:  # those that read photos inherit this, and are needed until the step is over
            signal.signal(number, self._before[number])
            self.asked = True
            self._say("finishing this step, then saving; press Ctrl-C again to stop at once")


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
