"""Modules without numbers: their shapes, and so the memory they need, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil
import torch
from torch import nn

from showtell.errors import UsageError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def skeleton(build: Callable[[], ModuleT]) -> ModuleT | None:
    """The module that a function builds, on torch's meta device; None where it cannot be built there."""
    try:
        with torch.device("meta"):
            return build()
    except (NotImplementedError, RuntimeError):  # it computes with its numbers
        return None


def check_memory(module: nn.Module | None, name: str, sizes: dict[str, int]) -> None:
    """Refuse a module whose weights do not fit into the memory of this machine.

    Args:
        module: a skeleton.
        name: what the message calls it.
        sizes: the settings that its size depends on.

    Raises:
        UsageError: it needs more than there is.
    """
    needed = 0 if module is None else sum(x.numel() * x.element_size() for x in module.state_dict().values())
    present = psutil.virtual_memory().total
    if needed > present:
        largest = max(sizes, key=lambda key: sizes[key], default="its sizes")
        raise UsageError(
            f"{name} would need {needed / 1e9:,.0f} GB for its weights and this machine has {present / 1e9:,.0f} GB; "
            f"lower {largest}" + (f"={sizes[largest]}." if largest in sizes else ".")
        )
