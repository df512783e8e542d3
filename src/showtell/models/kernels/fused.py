"""Scores of attention by one C++ loop, with gradients, in place of several passes of torch over megabytes.

The loop is in `compiled/` and computes with float32 on a CPU. On a GPU torch compiles the scores (Triton). Everything
else runs the plain form: other precisions, and machines without a compiler.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.cuda_graphs import is_static
from showtell.models.kernels import plain
from showtell.models.kernels.compiled import library
from showtell.models.kernels.plain import Activation, is_plain


class _AdditiveScores(torch.autograd.Function):
    """`plain.additive_scores`, whose backward pass computes the (B, N, R, A) activations again, in registers.

    For gradients g:  dw = sum_nr g f(p + q),  dp_r = w * sum_n g f'(p + q),  dq_n = w * sum_r g f'(p + q)
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor, w: Tensor, activation: Activation) -> Tensor:
        ctx.save_for_backward(p, q, w)
        ctx.sizes = (*q.shape[:2], *p.shape[1:], int(activation == "relu"))  # B, N, R, A
        scores = p.new_empty(*q.shape[:2], p.shape[1])
        library.call("additive_scores", (p, q, w), (scores,), *ctx.sizes)
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        p, q, w = ctx.saved_tensors
        grad_p, grad_q, grad_w = p.new_zeros(p.shape), q.new_empty(q.shape), w.new_empty(len(q), w.numel())
        library.call("additive_scores_backward", (p, q, w, gradient), (grad_p, grad_q, grad_w), *ctx.sizes)
        return grad_p.mul_(w.view(-1)), grad_q, grad_w.sum(0).view_as(w), None


@functools.cache
def _compile() -> list[Callable[..., Tensor]]:
    """The form that torch compiles, in a list that is emptied where there is no compiler."""
    return [torch.compile(plain.additive_scores, dynamic=False)]


def compiled_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation) -> Tensor:
    """`plain.additive_scores` in one kernel, which takes seconds to compile for each shape; plain if that fails."""
    try:
        for form in _compile():
            return form(projected, query, weight, activation)
    except Exception as error:  # noqa: BLE001  (no Triton, no compiler for its launcher, ...: each raises its own)
        _compile().clear()
        reason = str(error).strip().partition("\n")[0]
        warnings.warn(f"attention is not compiled, which costs time and memory: {reason}", stacklevel=2)
    return plain.additive_scores(projected, query, weight, activation)


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = "tanh") -> Tensor:
    """`plain.additive_scores`, without its tensor of (B, N, R, A)."""
    if projected.is_cuda and is_static() and not is_plain():  # what is captured comes often enough to be compiled
        return compiled_scores(projected, query, weight, activation)
    if is_plain() or not library.fits(projected, query, weight):
        return plain.additive_scores(projected, query, weight, activation)
    return cast(Tensor, _AdditiveScores.apply(projected, query, weight, activation))
