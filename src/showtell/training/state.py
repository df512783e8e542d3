"""What a run remembers between steps, as safetensors and JSON in `last/training/`, with checksums of all of `last/`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch.optim import Optimizer

from showtell.errors import CheckpointError
from showtell.files import read_json, read_text, write_bytes, write_json, write_text

TENSORS, NUMBERS = "training/optimizer.safetensors", "training/state.json"
CHECKSUMS = "training/SHA256SUMS"  # of the files of the checkpoint, as sha256sum writes and checks them


@dataclass
class Progress:
    """The progress of a run: its state between steps beside weights and optimiser."""

    step: int = 0  # of the optimiser, finished
    epochs: int = 0  # finished, with their validation
    best: float | None = None  # validation score of best/
    best_epoch: int | None = None
    stale: int = 0  # validations since the best one
    stopped: bool = False  # by patience
    log_bytes: int = 0  # length of log.jsonl
    scaler: dict[str, float] = field(default_factory=dict)  # of mixed precision in fp16
    start_rates: dict[str, float] = field(default_factory=dict)  # of the captions that a reward began with


def save_state(
    folder: Path, optimizer: Optimizer, extra: Mapping[str, Mapping[str, torch.Tensor]], numbers: Mapping[str, Any]
) -> None:
    """Write the optimiser, extra tensors by part of the run, numbers for JSON, and checksums of the whole folder."""
    state = optimizer.state_dict()
    tensors = {f"extra.{part}.{name}": tensor for part, own in extra.items() for name, tensor in own.items()}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, torch.Tensor):
                tensors[f"state.{parameter}.{name}"] = value
            else:
                plain.setdefault(str(parameter), {})[name] = value
    write_bytes(folder / TENSORS, save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))
    groups = {"param_groups": state["param_groups"], "plain": plain}
    write_json(folder / NUMBERS, {"optimizer": groups, **numbers}, indent=1)
    write_text(folder / CHECKSUMS, "".join(f"{line}\n" for line in _checksums(folder)))


def load_state(folder: Path, optimizer: Optimizer) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """Restore the optimiser; returns extra tensors and numbers. A CheckpointError if a file is not as it was saved."""
    recorded = read_text(folder / CHECKSUMS).splitlines() if (folder / CHECKSUMS).is_file() else []
    now = _checksums(folder)
    names = [line.partition("  ")[2] for line in recorded if line not in now]
    if names or not recorded or not recorded[-1].endswith(f"  {NUMBERS}"):
        raise CheckpointError(
            f"The training state is damaged: {folder / (names or [CHECKSUMS])[0]} is not the file that was saved; "
            "begin anew with another --out, from its best/ with training.start_from."
        )
    numbers = read_json(folder / NUMBERS)
    groups = numbers.pop("optimizer")
    entries: dict[int, dict[str, Any]] = {int(key): dict(value) for key, value in groups["plain"].items()}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    extra: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(folder / TENSORS).items():
        kind, owner, entry = name.split(".", 2)
        if kind == "extra":
            extra.setdefault(owner, {})[entry] = tensor
        else:
            entries.setdefault(int(owner), {})[entry] = _laid_out_as(weights[int(owner)], tensor)
    optimizer.load_state_dict({"state": entries, "param_groups": groups["param_groups"]})
    return extra, numbers


def _checksums(folder: Path) -> list[str]:
    """A line for each file of a checkpoint, in the order of their names, the checksums themselves left out."""
    lines = []
    for path in sorted(filter(Path.is_file, folder.rglob("*"))):
        if (name := path.relative_to(folder).as_posix()) != CHECKSUMS:
            with path.open("rb") as stream:
                lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()}  {name}")
    return lines


def _laid_out_as(weight: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in memory in the order of a weight's: a fused step goes through both without asking for it."""
    if tensor.shape != weight.shape:
        return tensor
    return torch.empty_like(weight, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
