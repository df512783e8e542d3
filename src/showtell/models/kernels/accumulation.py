"""Gradients of tensors that all steps of a loop over time share, computed once at the end of the backward pass.

autograd computes a gradient of a weight's full size at every step and adds it up, which costs more than the product
itself. Inside `gathered_gradients()` each step of the backward pass stores its input and the gradient of its result
in a `GradientAccumulator`, which computes one gradient after the last step. It is part of the same backward
pass: hooks, accumulation over batches and `torch.autograd.grad` see nothing unusual.
"""

from __future__ import annotations

import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels.switch import is_plain


class GradientAccumulator(ABC):
    """Collects the inputs and gradients of all steps of a backward pass for the tensors that they share."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors
        self._backward_pass: int | None = None
        self.clear()

    def begin_step(self) -> None:
        """Discard the entries of an earlier backward pass over the same steps."""
        current = torch._C._current_graph_task_id()
        if self._backward_pass != current:
            self._backward_pass = current
            self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Discard everything."""

    @abstractmethod
    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradients of the shared tensors."""


class _SharedTensors(torch.autograd.Function):
    """The identity on shared tensors. Its backward pass runs after those of all steps and reads the accumulator.

    The steps pass it no gradients of their own; autograd still orders the passes by the graph.
    """

    @staticmethod
    def forward(ctx: Any, accumulator: GradientAccumulator, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.accumulator = accumulator
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        accumulator: GradientAccumulator = ctx.accumulator
        accumulator.begin_step()
        gradients = accumulator.gradients()
        accumulator.clear()
        return None, *gradients


AccumulatorT = TypeVar("AccumulatorT", bound=GradientAccumulator)
# The accumulators of the current loop, by class and tensors, each with the views that its steps should use.
_Accumulators = dict[Any, tuple[GradientAccumulator, tuple[Tensor, ...]]]
_accumulators: contextvars.ContextVar[_Accumulators | None] = contextvars.ContextVar("accumulators", default=None)


@contextlib.contextmanager
def gathered_gradients() -> Iterator[None]:
    """Accumulate the gradients of shared tensors over a loop over time; wrap its forward pass in this."""
    token = _accumulators.set({})
    try:
        yield
    finally:
        _accumulators.reset(token)


def accumulator_for(kind: type[AccumulatorT], *tensors: Tensor) -> tuple[AccumulatorT, tuple[Tensor, ...]] | None:
    """The accumulator of these tensors in the current loop, and the views that its steps should use.

    Args:
        kind: the class of the accumulator, made from the tensors at their first use in the loop.
        tensors: shared by the steps.

    Returns:
        None outside of `gathered_gradients`, if no tensor requires a gradient, and under autocast.
    """
    known = _accumulators.get()
    if known is None or is_plain() or not torch.is_grad_enabled():
        return None
    if not any(tensor.requires_grad for tensor in tensors):
        return None
    if torch.is_autocast_enabled(tensors[0].device.type):
        return None
    key = (kind, *map(id, tensors))
    if key not in known:
        accumulator = kind(*tensors)  # it keeps the tensors alive, so that their ids stay unique
        known[key] = (accumulator, _SharedTensors.apply(accumulator, *tensors))
    return cast("tuple[AccumulatorT, tuple[Tensor, ...]]", known[key])
