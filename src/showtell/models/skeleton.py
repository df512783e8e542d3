"""Modules on torch's meta device: their shapes before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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
