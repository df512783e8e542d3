"""Linear layers for decoders: torch's, faster where a step has few rows and where a walk takes many steps.

Nothing is differentiated (decoding): large weights on a CPU are multiplied in the order that suits few rows
(`packed.py`).

Gradients are asked for (training): a walk over T steps uses the same weight T times. autograd makes a gradient of the
weight's full size at every step and adds it up, which costs more than the product itself. Inside
`gathered_gradients()` each step of the backward pass puts its input x_t and the gradient g_t of its result aside, and
when the last of them is there, one product gives

    dW = sum_t g_t' x_t = [g_1 .. g_T]' [x_1 .. x_T]

The gradient is part of the same backward pass: hooks, accumulation and `torch.autograd.grad` see nothing unusual.

In every other case (autocast, a compiler) it is torch's layer unchanged.
"""

from __future__ import annotations

import contextlib
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from showtell.models import packed


class GradientAccumulator(ABC):
    """What the steps of one backward pass leave for the gradient of the tensors that they share."""

    def __init__(self, *shared: Tensor) -> None:
        self.shared = shared
        self._pass: int | None = None
        self.clear()

    def open(self) -> None:
        """Forget what another backward pass over the same steps has left."""
        now = torch._C._current_graph_task_id()
        if self._pass != now:
            self._pass = now
            self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def collect(self) -> tuple[Tensor | None, ...]:
        """The gradients of the shared tensors."""


class _Share(torch.autograd.Function):
    """Hands out shared tensors. Its backward pass comes after those of all steps that use them, and asks the note.

    The steps give no gradients of their own to it; autograd orders the passes by who uses what all the same.
    """

    @staticmethod
    def forward(ctx: Any, note: GradientAccumulator, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.note = note
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        note: GradientAccumulator = ctx.note
        note.open()
        gradients = note.collect()
        note.clear()
        return None, *gradients


_walk: contextvars.ContextVar[dict[Any, tuple[GradientAccumulator, tuple[Tensor, ...]]] | None] = (
    contextvars.ContextVar("walk", default=None)
)


@contextlib.contextmanager
def gathered_gradients() -> Iterator[None]:
    """Around the forward pass of a walk: the gradients of what its steps share are gathered over time."""
    token = _walk.set({})
    try:
        yield
    finally:
        _walk.reset(token)


GradientAccumulatorT = TypeVar("GradientAccumulatorT", bound=GradientAccumulator)


def shared(
    kind: type[GradientAccumulatorT], *tensors: Tensor
) -> tuple[GradientAccumulatorT, tuple[Tensor, ...]] | None:
    """The note of these tensors in the walk at hand, and the tensors as its steps should use them.

    Args:
        kind: the class of the note, made from the tensors at their first use in the walk.
        tensors: what the steps share.

    Returns:
        None outside of a walk, where there is nothing to gather, under autocast and in a compiler.
    """
    walk = _walk.get()
    if walk is None or not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in tensors):
        return None
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(tensors[0].device.type):
        return None
    key = (kind, *map(id, tensors))
    if key not in walk:
        note = kind(*tensors)  # it keeps the tensors, so that no other gets their ids
        walk[key] = (note, _Share.apply(note, *tensors))
    return walk[key]  # type: ignore[return-value]


class _Rows(GradientAccumulator):
    """Inputs and gradients of the steps that use a weight, by columns."""

    def clear(self) -> None:
        self.rows: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}

    def collect(self) -> tuple[Tensor | None, ...]:
        """dW, columns that nobody used being 0."""
        (weight,) = self.shared
        parts = {
            columns: _weight_gradient(weight, *(torch.cat(rows) for rows in zip(*pairs, strict=True)))
            for columns, pairs in self.rows.items()
        }
        in_order = sorted(parts)
        if [first for first, _ in in_order] + [weight.shape[1]] == [0] + [last for _, last in in_order]:
            return (torch.cat([parts[columns] for columns in in_order], 1),)  # side by side they are the whole
        whole = torch.zeros_like(weight)
        for (first, last), part in parts.items():
            whole[:, first:last] += part
        return (whole,)


def _weight_gradient(weight: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
    """dW = g' x for (M, in) and (M, out): (out, in).

    Of two factors that lie transposed oneDNN's layer copies the left one, so the smaller one stands there: for the
    readout g is as large as all scores and x is not, so it is dW' = x' g.
    """
    if not packed.fits(x, weight):
        return gradient.T @ x
    if x.shape[1] < gradient.shape[1]:
        return packed.single(x.T, gradient.T).T
    return packed.single(gradient.T, x.T)


class _Step(torch.autograd.Function):
    """A linear layer as a step of a walk uses it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, first: int, note: _Rows) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.first, ctx.note = first, note
        return _undifferentiated(x, note.shared[0], bias, first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        first, last = ctx.first, ctx.first + x.shape[-1]
        rows = gradient.flatten(0, -2)
        ctx.note.open()
        ctx.note.rows.setdefault((first, last), []).append((x.flatten(0, -2), rows))
        of_x = None
        if ctx.needs_input_grad[0]:
            whole = ctx.note.shared[0]
            of_x = (
                packed.product(gradient, whole, None, first, last, is_transposed=True)
                if packed.fits(gradient, whole)
                else gradient @ weight[:, first:last]
            )
        return of_x, None, rows.sum(0) if ctx.needs_input_grad[2] else None, None, None


class _Once(torch.autograd.Function):
    """A linear layer with many rows, by oneDNN, which is faster than what torch calls here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return packed.single(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2).contiguous()
        return (
            packed.single(rows, weight.T).view_as(x) if ctx.needs_input_grad[0] else None,
            _weight_gradient(weight, x.flatten(0, -2), rows) if ctx.needs_input_grad[1] else None,
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _undifferentiated(x: Tensor, weight: Tensor, bias: Tensor | None, first: int) -> Tensor:
    last = first + x.shape[-1]
    if packed.fits(x, weight):
        return packed.product(x, weight, bias, first, last)
    return F.linear(x, weight[:, first:last], bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, first: int = 0) -> Tensor:
    """x W' + b with some columns of W.

    Args:
        x: (..., P).
        weight: W, a parameter, (out, in). The columns first to first + P are used.
        bias: b, (out).
        first: the first column.

    Returns:
        (..., out).
    """
    if not torch.is_grad_enabled():
        return _undifferentiated(x, weight, bias, first)
    gathered = shared(_Rows, weight) if x.dim() > 1 and x.dtype == weight.dtype else None
    if gathered is not None:
        note, (view,) = gathered
        return _Step.apply(x, view, bias, first, note)
    part = weight[:, first : first + x.shape[-1]]
    return _Once.apply(x, part, bias) if x.dim() > 1 and packed.fits(x, part) else F.linear(x, part, bias)


class Linear(nn.Linear):
    """torch's linear layer, faster for decoders."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return linear(input, self.weight, self.bias)


class _Looked(GradientAccumulator):
    """Rows of a table that steps looked up, and their gradients."""

    def clear(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def collect(self) -> tuple[Tensor | None, ...]:
        """The gradient of the table, made once: one for each step would be the size of the table each time."""
        (table,) = self.shared
        ids, gradients = (torch.cat(steps) for steps in zip(*self.steps, strict=True))
        return (torch.ops.aten.embedding_dense_backward(gradients, ids, len(table), -1, False),)


class _LookStep(torch.autograd.Function):
    """Rows of a table as a step of a walk looks them up."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, note: _Looked) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.note = note
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        ctx.note.open()
        ctx.note.steps.append((ids.flatten(), gradient.flatten(0, -2)))
        return None, None, None


class Embedding(nn.Embedding):
    """torch's embedding of ids, of which a walk gathers the gradient; for tables without torch's further options."""

    def forward(self, input: Tensor) -> Tensor:
        """(...) int64 to (..., E)."""
        gathered = shared(_Looked, self.weight)
        if gathered is None:
            return super().forward(input)
        note, (view,) = gathered
        return _LookStep.apply(input, view, note)


class _Weights(GradientAccumulator):
    """Weights and gradients of the steps that take weighted means of the vectors of an image."""

    def clear(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def collect(self) -> tuple[Tensor | None, ...]:
        """dV, in one product per image."""
        alphas, gradients = (torch.cat(steps, 1) for steps in zip(*self.steps, strict=True))
        return (alphas.mT @ gradients,)


class _WeightedStep(torch.autograd.Function):
    """alpha V as a step of a walk uses it."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, vectors: Tensor, note: _Weights) -> Tensor:
        ctx.save_for_backward(alpha, vectors)
        ctx.note = note
        return alpha @ vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        alpha, vectors = ctx.saved_tensors
        ctx.note.open()
        ctx.note.steps.append((alpha, gradient))
        return gradient @ vectors.mT if ctx.needs_input_grad[0] else None, None, None


def weighted_sum(alpha: Tensor, vectors: Tensor) -> Tensor:
    """sum_i alpha_i v_i, of which a walk gathers the gradient of the vectors.

    Args:
        alpha: (B, N, R).
        vectors: (B, R, D).

    Returns:
        (B, N, D).
    """
    gathered = shared(_Weights, vectors) if alpha.dtype == vectors.dtype else None
    if gathered is None:
        return alpha @ vectors
    note, (view,) = gathered
    return _WeightedStep.apply(alpha, view, note)
