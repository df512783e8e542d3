"""Gradients of tensors that all steps of a loop over time share, computed once at the end of the backward pass.

autograd computes a gradient of a weight's full size at every step and adds it up, which costs more than the product
itself. Inside `gathered_gradients()` each step of the backward pass stores its input and the gradient of its result
in a `GradientAccumulator`, and one gradient is computed after the last step. It is part of the same backward
pass: hooks, accumulation over batches and `torch.autograd.grad` see nothing unusual.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels.plain import is_plain

GradientOf = Callable[[Tensor, Sequence[Any]], Tensor]  # the tensor and what its steps stored, to its gradient


class GradientAccumulator:
    """Collects what all steps of a backward pass store for the gradient of a tensor that they share."""

    def __init__(self, tensor: Tensor, gradient_of: GradientOf) -> None:
        self._tensor, self._gradient_of = tensor, gradient_of  # keeps the tensor alive, so that its id stays unique
        self._steps: list[Any] = []
        self._backward_pass: int | None = None

    def add(self, *step: Any) -> None:
        """Store the entries of a step."""
        self._begin()
        self._steps.append(step)

    def gradient(self) -> Tensor:
        """The gradient of the shared tensor, after the last step."""
        self._begin()
        steps, self._steps = self._steps, []
        return self._gradient_of(self._tensor, steps)

    def _begin(self) -> None:
        """Discard the entries of an earlier backward pass over the same steps."""
        current = torch._C._current_graph_task_id()
        if self._backward_pass != current:
            self._backward_pass, self._steps = current, []


class _SharedTensor(torch.autograd.Function):
    """The identity on a shared tensor. Its backward pass runs after those of all steps and reads the accumulator.

    The steps pass it no gradients of their own; autograd still orders the passes by the graph.
    """

    @staticmethod
    def forward(ctx: Any, accumulator: GradientAccumulator, tensor: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.accumulator = accumulator
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[None, Tensor]:
        return None, ctx.accumulator.gradient()


# The accumulators of the current loop by tensor, each with the view that its steps use.
_Accumulators = dict[tuple[GradientOf, int], tuple[GradientAccumulator, Tensor]]
_accumulators: contextvars.ContextVar[_Accumulators | None] = contextvars.ContextVar("accumulators", default=None)


@contextlib.contextmanager
def gathered_gradients() -> Iterator[None]:
    """Accumulate the gradients of shared tensors over a loop over time; wrap its forward pass in this."""
    token = _accumulators.set({})
    try:
        yield
    finally:
        _accumulators.reset(token)


def accumulator_for(gradient_of: GradientOf, tensor: Tensor) -> tuple[GradientAccumulator, Tensor] | None:
    """The accumulator of a tensor in the current loop, and the view of it that the steps should use.

    None outside of `gathered_gradients`, if the tensor requires no gradient, and under autocast.
    """
    known = _accumulators.get()
    if known is None or is_plain() or not (torch.is_grad_enabled() and tensor.requires_grad):
        return None
    if torch.is_autocast_enabled(tensor.device.type):
        return None
    key = (gradient_of, id(tensor))
    if key not in known:
        accumulator = GradientAccumulator(tensor, gradient_of)
        known[key] = (accumulator, _SharedTensor.apply(accumulator, tensor))
    return known[key]
