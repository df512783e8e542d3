"""Modules on torch's meta device: their shapes before anything is allocated, and their weights put in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def filled(module: ModuleT, weights: Mapping[str, Tensor]) -> ModuleT | None:
    """A skeleton with its weights, in its own precisions and memory formats; None where it has more than its weights.

    That is a tensor which its constructor computes and no file has, or one that two of its parts share.
    """
    expected = module.state_dict(keep_vars=True)
    known = set(map(id, expected.values()))
    if len(known) < len(expected) or not known.issuperset(map(id, _tensors(module))):
        return None
    own = {  # `empty_like` would import sympy
        name: torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype).copy_(weights[name])
        for name, tensor in expected.items()
    }
    module.load_state_dict(own, assign=True)
    return module


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a module, those in its attributes too."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module | dict | list | tuple):
        parts = vars(value) if isinstance(value, nn.Module) else value
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from _tensors(part)
