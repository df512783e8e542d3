"""Modules on torch's meta device: their shapes and memory before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psutil
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from showtell.errors import UsageError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class _NoRandomNumbers(TorchFunctionMode):
    """Leaves out random initial values, for which torch would import its compiler on the meta device: a second."""

    FILLS = (
        *(Tensor.normal_, Tensor.uniform_),
        *(nn.init.normal_, nn.init.uniform_, nn.init.kaiming_normal_, nn.init.kaiming_uniform_),
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in self.FILLS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def skeleton(build: Callable[[], ModuleT]) -> ModuleT | None:
    """The module that a function builds, on torch's meta device; None where it cannot be built there."""
    try:
        with torch.device("meta"), _NoRandomNumbers():
            return build()
    except (NotImplementedError, RuntimeError):  # its constructor needs tensor values
        return None


def check_memory(module: nn.Module | None, name: str, sizes: dict[str, int]) -> None:
    """Raise an error if the weights of a module do not fit into the memory of this machine.

    Args:
        module: a skeleton.
        name: its name in the message.
        sizes: the settings that its size depends on.

    Raises:
        UsageError: the weights need more memory than the machine has.
    """
    needed = 0 if module is None else sum(x.numel() * x.element_size() for x in module.state_dict().values())
    present = psutil.virtual_memory().total
    if needed > present:
        largest = max(sizes, key=lambda key: sizes[key], default="its sizes")
        raise UsageError(
            f"{name} would need {needed / 1e9:,.0f} GB for its weights and this machine has {present / 1e9:,.0f} GB; "
            f"lower {largest}" + (f"={sizes[largest]}." if largest in sizes else ".")
        )
