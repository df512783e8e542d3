"""Linear maps, faster where a step has few rows and where a loop takes many steps.

Without gradients (decoding): large weights on a CPU are multiplied in a packed layout that suits few rows
(`onednn.py`).

With gradients (training): a loop over T steps uses the same weight T times. Inside `gathered_gradients()`
(`accumulation.py`) the gradient comes from one product of all inputs x_t and gradients g_t of the results,

    dW = sum_t g_t' x_t = [g_1 .. g_T]' [x_1 .. x_T]

In every other case it is torch's own function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import onednn, plain
from showtell.models.kernels.accumulation import GradientAccumulator, accumulator_for


def _weight_gradient(weight: Tensor, steps: Sequence[tuple[int, Tensor, Tensor]]) -> Tensor:
    """dW from the first column, input and gradient of each step; unused columns are 0."""
    by_column: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for start, *pair in steps:
        by_column.setdefault(start, []).append((pair[0], pair[1]))
    whole = torch.zeros_like(weight)
    for start, pairs in by_column.items():
        x, gradient = (torch.cat(rows) for rows in zip(*pairs, strict=True))
        whole[:, start : start + x.shape[1]] += gradient.T @ x
    return whole


class _LinearStep(torch.autograd.Function):
    """A linear map in a step of a loop."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, offset: int, accumulator: GradientAccumulator
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.offset, ctx.accumulator = offset, accumulator
        return plain.linear(x, weight, bias, offset=offset)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        ctx.accumulator.add(ctx.offset, x.flatten(0, -2), rows)
        columns = weight[:, ctx.offset : ctx.offset + x.shape[-1]]
        grad_x = gradient @ columns if ctx.needs_input_grad[0] else None
        return grad_x, None, rows.sum(0) if ctx.needs_input_grad[2] else None, None, None


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
    if not torch.is_grad_enabled() and onednn.supports(x, weight):
        return onednn.packed_product(x, weight, bias, offset, offset + x.shape[-1])
    gathered = accumulator_for(_weight_gradient, weight) if x.dim() > 1 and x.dtype == weight.dtype else None
    if gathered is None:
        return plain.linear(x, weight, bias, offset=offset)
    accumulator, view = gathered
    return cast(Tensor, _LinearStep.apply(x, view, bias, offset, accumulator))
