"""Linear maps, embeddings and weighted sums, faster where a step has few rows and where a loop takes many steps.

Without gradients (decoding): large weights on a CPU are multiplied in a packed layout that suits few rows
(`onednn.py`).

With gradients (training): a loop over T steps uses the same weight T times. Inside `gathered_gradients()`
(`accumulation.py`) the gradient comes from one product of all inputs x_t and gradients g_t of the results,

    dW = sum_t g_t' x_t = [g_1 .. g_T]' [x_1 .. x_T]

In every other case (autocast, a compiler) it is torch's own function.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import onednn, plain
from showtell.models.kernels.accumulation import GradientAccumulator, accumulator_for
from showtell.models.kernels.switch import is_plain


class _LinearGradients(GradientAccumulator):
    """Inputs and gradients of the steps that use a weight, by columns."""

    def clear(self) -> None:
        self.steps: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}

    def gradients(self) -> tuple[Tensor | None, ...]:
        """dW; unused columns are 0."""
        (weight,) = self.tensors
        parts = {
            columns: _weight_gradient(weight, *(torch.cat(rows) for rows in zip(*pairs, strict=True)))
            for columns, pairs in self.steps.items()
        }
        in_order = sorted(parts)
        if [start for start, _ in in_order] + [weight.shape[1]] == [0] + [stop for _, stop in in_order]:
            return (torch.cat([parts[columns] for columns in in_order], 1),)  # they cover all columns
        whole = torch.zeros_like(weight)
        for (start, stop), part in parts.items():
            whole[:, start:stop] += part
        return (whole,)


def _weight_gradient(weight: Tensor, x: Tensor, gradient: Tensor) -> Tensor:
    """dW = g' x for (M, in) and (M, out): (out, in).

    Of two transposed factors oneDNN copies the left one, so the smaller one goes there: for the readout g is as
    large as all logits and x is not, so it is dW' = x' g.
    """
    if onednn.PREFERS_DEFAULT or not onednn.supports(x, weight):
        return gradient.T @ x
    if x.shape[1] < gradient.shape[1]:
        return onednn.product(x.T, gradient.T).T
    return onednn.product(gradient.T, x.T)


class _LinearStep(torch.autograd.Function):
    """A linear map in a step of a loop."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, offset: int, accumulator: _LinearGradients
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.offset, ctx.accumulator = offset, accumulator
        return _linear_without_gradient(x, accumulator.tensors[0], bias, offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        start, stop = ctx.offset, ctx.offset + x.shape[-1]
        rows = gradient.flatten(0, -2)
        accumulator: _LinearGradients = ctx.accumulator
        accumulator.begin_step()
        accumulator.steps.setdefault((start, stop), []).append((x.flatten(0, -2), rows))
        grad_x = None
        if ctx.needs_input_grad[0]:
            whole = accumulator.tensors[0]
            grad_x = (
                onednn.packed_product(gradient, whole, None, start, stop, is_transposed=True)
                if onednn.supports(gradient, whole) and not onednn.PREFERS_DEFAULT
                else gradient @ weight[:, start:stop]
            )
        return grad_x, None, rows.sum(0) if ctx.needs_input_grad[2] else None, None, None


class _OneDnnLinear(torch.autograd.Function):
    """A linear map of many rows, by oneDNN, which is faster than torch's default here."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn.product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2).contiguous()
        return (
            onednn.product(rows, weight.T).view_as(x) if ctx.needs_input_grad[0] else None,
            _weight_gradient(weight, x.flatten(0, -2), rows) if ctx.needs_input_grad[1] else None,
            rows.sum(0) if ctx.needs_input_grad[2] else None,
        )


def _linear_without_gradient(x: Tensor, weight: Tensor, bias: Tensor | None, offset: int) -> Tensor:
    if onednn.supports(x, weight):
        return onednn.packed_product(x, weight, bias, offset, offset + x.shape[-1])
    return plain.linear(x, weight, bias, offset=offset)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, offset: int = 0) -> Tensor:
    """x W' + b with some columns of W.

    Args:
        x: (..., P).
        weight: W, a parameter, (out, in). The columns offset to offset + P are used.
        bias: b, (out).
        offset: the first column.

    Returns:
        (..., out).
    """
    if is_plain():
        return plain.linear(x, weight, bias, offset=offset)
    if not torch.is_grad_enabled():
        return _linear_without_gradient(x, weight, bias, offset)
    gathered = accumulator_for(_LinearGradients, weight) if x.dim() > 1 and x.dtype == weight.dtype else None
    if gathered is not None:
        accumulator, (view,) = gathered
        return cast(Tensor, _LinearStep.apply(x, view, bias, offset, accumulator))
    part = weight[:, offset : offset + x.shape[-1]]
    if x.dim() > 1 and not onednn.PREFERS_DEFAULT and onednn.supports(x, part):
        return cast(Tensor, _OneDnnLinear.apply(x, part, bias))
    return plain.linear(x, part, bias)


class _EmbeddingGradients(GradientAccumulator):
    """The ids that the steps look up in a table, and the gradients of its rows."""

    def clear(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def gradients(self) -> tuple[Tensor | None, ...]:
        """The gradient of the table, computed once instead of once per step."""
        (table,) = self.tensors
        ids, gradients = (torch.cat(steps) for steps in zip(*self.steps, strict=True))
        return (torch.ops.aten.embedding_dense_backward(gradients, ids, len(table), -1, False),)


class _EmbeddingStep(torch.autograd.Function):
    """An embedding in a step of a loop."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, accumulator: _EmbeddingGradients) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.accumulator = accumulator
        return plain.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        ctx.accumulator.begin_step()
        ctx.accumulator.steps.append((ids.flatten(), gradient.flatten(0, -2)))
        return None, None, None


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of a table, (...) int64 to (..., E); a loop gathers the gradient of the table."""
    gathered = accumulator_for(_EmbeddingGradients, table)
    if gathered is None:
        return plain.embedding(ids, table)
    accumulator, (view,) = gathered
    return cast(Tensor, _EmbeddingStep.apply(ids, view, accumulator))


class _WeightedSumGradients(GradientAccumulator):
    """Weights and gradients of the steps that take weighted sums of the vectors of an image."""

    def clear(self) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []

    def gradients(self) -> tuple[Tensor | None, ...]:
        """dV, in one product per image."""
        alphas, gradients = (torch.cat(steps, 1) for steps in zip(*self.steps, strict=True))
        return (alphas.mT @ gradients,)


class _WeightedSumStep(torch.autograd.Function):
    """alpha V in a step of a loop."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, vectors: Tensor, accumulator: _WeightedSumGradients) -> Tensor:
        ctx.save_for_backward(alpha, vectors)
        ctx.accumulator = accumulator
        return plain.weighted_sum(alpha, vectors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        alpha, vectors = ctx.saved_tensors
        ctx.accumulator.begin_step()
        ctx.accumulator.steps.append((alpha, gradient))
        return gradient @ vectors.mT if ctx.needs_input_grad[0] else None, None, None


def weighted_sum(alpha: Tensor, vectors: Tensor) -> Tensor:
    """sum_i alpha_i v_i; a loop gathers the gradient of the vectors.

    Args:
        alpha: (B, N, R).
        vectors: (B, R, D).

    Returns:
        (B, N, D).
    """
    gathered = accumulator_for(_WeightedSumGradients, vectors) if alpha.dtype == vectors.dtype else None
    if gathered is None:
        return plain.weighted_sum(alpha, vectors)
    accumulator, (view,) = gathered
    return cast(Tensor, _WeightedSumStep.apply(alpha, view, accumulator))
