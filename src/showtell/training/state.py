"""What a run remembers between steps, as safetensors and JSON in `last/training/`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch.optim import Optimizer

from showtell.errors import CheckpointError
from showtell.files import read_json, write_bytes, write_json

TENSORS, NUMBERS = "optimizer.safetensors", "state.json"


@dataclass
class Progress:
    """How far a run is: what it remembers between steps beside weights and optimiser."""

    step: int = 0  # of the optimiser, finished
    epochs: int = 0  # finished, with their validation
    best: float | None = None  # validation score of best/
    best_epoch: int | None = None
    stale: int = 0  # validations since the best one
    stopped: bool = False  # by patience
    log_bytes: int = 0  # length of log.jsonl
    scaler: dict[str, float] = field(default_factory=dict)  # of mixed precision in fp16


def save_state(folder: Path, optimizer: Optimizer, extra: dict[str, torch.Tensor], numbers: dict[str, Any]) -> None:
    """Write optimiser tensors, further tensors and numbers.

    Args:
        folder: made if it is not there.
        optimizer: its state is named state.<parameter>.<name>.
        extra: tensors that are not in the checkpoint, such as the objective's own weights.
        numbers: anything that JSON can hold.
    """
    state = optimizer.state_dict()
    tensors = {f"extra.{name}": tensor for name, tensor in extra.items()}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"state.{parameter}.{name}"] = value
            else:
                plain.setdefault(str(parameter), {})[name] = value
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(folder / TENSORS, save(on_cpu))
    groups = {"param_groups": state["param_groups"], "plain": plain}
    write_json(folder / NUMBERS, {"optimizer": groups, **numbers}, indent=1)


def load_state(folder: Path, optimizer: Optimizer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what `save_state` wrote, and restore the optimiser.

    Returns:
        The further tensors, and the numbers.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    with damage_refused(folder / NUMBERS):
        numbers = read_json(folder / NUMBERS)
        groups = numbers.pop("optimizer")
        entries: dict[int, dict[str, Any]] = {int(key): dict(value) for key, value in groups["plain"].items()}
    try:
        tensors = load_file(folder / TENSORS)
    except (SafetensorError, OSError) as error:
        raise _damaged(folder / TENSORS, f"cannot be read ({error})") from error
    with damage_refused(folder / TENSORS):
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        extra = {}
        for name, tensor in tensors.items():
            kind, rest = name.split(".", 1)
            if kind == "extra":
                extra[rest] = tensor
            else:
                parameter, entry = rest.split(".", 1)
                entries.setdefault(int(parameter), {})[entry] = _laid_out_as(weights[int(parameter)], tensor)
        optimizer.load_state_dict({"state": entries, "param_groups": groups["param_groups"]})
    return extra, numbers


@contextlib.contextmanager
def damage_refused(file: Path) -> Iterator[None]:
    """Inside the block, content of a wrong structure or type is refused as damage of the file.

    Raises:
        CheckpointError: there is some.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise _damaged(file, "does not hold what was saved") from error


def _damaged(file: Path, how: str) -> CheckpointError:
    return CheckpointError(
        f"The training state is damaged: {file} {how}; begin anew with another --out, from its best/ with "
        "training.start_from."
    )


def named(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors under the name of a part."""
    return {f"{part}.{name}": tensor for name, tensor in tensors.items()}


def of_part(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a part, under their own names."""
    return {name.removeprefix(f"{part}."): tensor for name, tensor in tensors.items() if name.startswith(f"{part}.")}


def _laid_out_as(weight: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in memory in the order of a weight's: a fused step goes through both without asking for it."""
    if tensor.shape != weight.shape:
        return tensor
    return torch.empty_like(weight, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
