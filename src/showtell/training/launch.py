"""The environment of a run: the lock of its folder, its trackers, signals, devices and processes."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers
from accelerate.utils import DistributedDataParallelKwargs, parse_flag_from_env
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from showtell.errors import MissingDependencyError, RecipeError, UsageError, nearest
from showtell.models import Capability
from showtell.models.kernels import can_round_products
from showtell.objectives import OBJECTIVES
from showtell.processes import is_first_process, lock_folder
from showtell.training.recipe import Recipe


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keep other programs from writing a run folder; one that was made for a run that cannot begin goes again."""
    if not is_first_process():  # which does it for all
        yield
        return
    if folder.is_file():
        raise UsageError(f"{folder} is a file; a run needs a folder: choose another --out.")
    with lock_folder(folder, "training in", "another --out"):
        yield


def find_trackers(names: Sequence[str]) -> None:
    """Make sure that accelerate knows each of the trackers, and that their packages are installed.

    Raises:
        RecipeError: there is no such tracker.
        MissingDependencyError: its package is missing.
    """
    for name in names:
        if name not in LOGGER_TYPE_TO_CLASS:
            raise RecipeError(f'training.trackers: there is no "{name}"; {nearest(name, LOGGER_TYPE_TO_CLASS)}.')
        if name not in {tracker.value for tracker in get_available_trackers()}:
            raise MissingDependencyError(
                f"training.trackers asks for {name}, whose package is not installed: pip install "
                f"{name.replace('_', '-')}, or leave it out."
            )


def rounds_products(recipe: Recipe) -> bool:
    """Whether bf16 is had by rounding the factors of products alone, which is faster than autocast on a processor.

    Not for a decoder that takes all steps at once: its large tensors gain more from 16 bits in memory.
    """
    on_processor = not torch.accelerator.is_available() or parse_flag_from_env("ACCELERATE_USE_CPU")
    is_stepwise = Capability.PARALLEL not in recipe.model.capabilities
    return recipe.training.mixed_precision == "bf16" and on_processor and is_stepwise and can_round_products()


def make_accelerator(recipe: Recipe, folder: Path) -> Accelerator:
    """Devices, processes and precision of a run."""
    AcceleratorState._reset_state()  # an earlier run of this program may have had another precision
    # To look for weights without gradient takes time.
    has_idle_weights = _has_idle_weights(recipe)
    accelerator = Accelerator(
        kwargs_handlers=[
            # Gradients live where they are exchanged: one copy of them less, in time and in memory.
            DistributedDataParallelKwargs(find_unused_parameters=has_idle_weights, gradient_as_bucket_view=True)
        ],
        mixed_precision="no" if rounds_products(recipe) else recipe.training.mixed_precision,
        cpu=not torch.accelerator.is_available(),  # accelerate wants to be told before it lets processes work together
        log_with=list(recipe.training.trackers) or None,
        project_dir=str(folder),
    )
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != accelerator.num_processes:
        raise UsageError(
            f"{started} processes were started that cannot work together on {accelerator.device}: start one, or set "
            "ACCELERATE_USE_CPU=true to train on the processor."
        )
    if recipe.training.batch_size < accelerator.num_processes:
        raise RecipeError(
            f"training.batch_size={recipe.training.batch_size} is shared by {accelerator.num_processes} processes, of "
            "which some would have no image: set it to their number or more, or start fewer processes."
        )
    return accelerator


def _has_idle_weights(recipe: Recipe) -> bool:
    """Whether some weights have no gradient in some steps.

    Those of an encoder that learns later, of stages without samples or a likelihood of their own, of terms that an
    epoch leaves out, of subgoals that the objective does not train.
    """
    objective = OBJECTIVES[recipe.objective.name][1]
    return (
        recipe.encoder.start_epoch > 0
        or objective.optimises_reward
        or (recipe.model.stages > 1 and not getattr(recipe.objective, "earlier_stage_weight", 1.0))
        or (Capability.GOALS in recipe.model.capabilities and Capability.GOALS not in objective.needs)
    )


def rehearse(model: nn.Module) -> None:
    """Let torch settle how gradients are exchanged, by a pass over a model's weights that changes nothing.

    After the first backward pass of a program they go into other buckets, in the order in which they came, and with
    three processes or more it depends on the buckets in which order numbers are added: without a rehearsal the first
    step of a resumed run would not have the bits of one that was never stopped.

    Args:
        model: as accelerate prepared it; called with None, it gives a term that every weight is part of.
    """
    if isinstance(model, DistributedDataParallel) and not model.find_unused_parameters:
        model(None).total.backward()
        model.zero_grad()


def wait_for_hours(accelerator: Accelerator) -> None:
    """Wait for the first process longer than torch waits by default, which takes half an hour for a failure."""
    if accelerator.num_processes > 1:
        group: Any = torch.distributed.new_group(timeout=timedelta(days=7), backend="gloo")
        torch.distributed.barrier(group)
        torch.distributed.destroy_process_group(group)


class Interrupts:
    """Inside the block, the first Ctrl-C or SIGTERM asks to stop and says so; the second kills the program.

    Processes that read photos inherit this and take no notice: they are needed until the step is over.

    Args:
        say: shows a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._came: set[int] = set()
        self._process = os.getpid()
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether this process was asked to stop."""
        return bool(self._came)

    def __enter__(self) -> Interrupts:
        with contextlib.suppress(ValueError):  # not the main thread: somebody else handles signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: object) -> None:
        if os.getpid() != self._process:
            return
        if number in self._came:  # SIGTERM behind a Ctrl-C is what launchers pass on
            signal.default_int_handler(number, None)
        self._came.add(number)
        self._say("finishing this step, then saving; press Ctrl-C again to stop at once")
