"""Operations that take torch several passes over megabytes, as one loop of C++ each, with their gradients.

The loops are in `compiled/` and compute with float32 on a CPU. Everything else runs the plain form: other precisions,
GPUs, and machines without a compiler.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import plain
from showtell.models.kernels.compiled import library as compiled
from showtell.models.kernels.plain import Activation
from showtell.models.kernels.switch import is_plain


class _AdditiveScores(torch.autograd.Function):
    """`plain.additive_scores`. The backward pass computes the (B, N, R, A) activations again, in registers.

    For gradients g of the scores:

        dw = sum_nr g f(p + q),   dp_r = w * sum_n g f'(p + q),   dq_n = w * sum_r g f'(p + q)
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, query: Tensor, weight: Tensor, activation: Activation) -> Tensor:
        """(B, R, A), (B, N, A) and A numbers to (B, N, R)."""
        ctx.save_for_backward(projected, query, weight)
        ctx.activation = activation
        return compiled.additive_scores(projected, query, weight, activation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of projected, query and weight."""
        projected, query, weight = ctx.saved_tensors
        return *compiled.additive_scores_backward(projected, query, weight, gradient, ctx.activation), None


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = "tanh") -> Tensor:
    """`plain.additive_scores`, without its tensor of (B, N, R, A)."""
    if is_plain() or not compiled.fits(projected, query, weight):
        return plain.additive_scores(projected, query, weight, activation)
    return cast(Tensor, _AdditiveScores.apply(projected, query, weight, activation))


class _LogLikelihood(torch.autograd.Function):
    """`plain.log_likelihood` of (M, V) scores and (M,) words, which keeps nothing but the scores.

    torch keeps the log-probabilities of all words for the backward pass and fills two more tensors of that size there.

        d/ds_v = g ((1 - epsilon) [v = y] + epsilon / V - p(v))
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, words: Tensor, smoothing: float) -> Tensor:
        ctx.smoothing = smoothing
        logsumexp, sums = compiled.log_sum_exp(scores)
        ctx.save_for_backward(scores, words, logsumexp)
        logprob = scores.gather(1, words.unsqueeze(1)).squeeze(1) - logsumexp
        if not smoothing:
            return logprob
        return (1 - smoothing) * logprob + smoothing * (sums / scores.shape[1] - logsumexp)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scores, words, logsumexp = ctx.saved_tensors
        return compiled.log_likelihood_backward(scores, words, logsumexp, gradient, ctx.smoothing), None, None


def log_likelihood(scores: Tensor, words: Tensor, smoothing: float = 0.0) -> Tensor:
    """log p of each word, smoothed by epsilon (Szegedy et al., 2016).

    Args:
        scores: (..., V), before the softmax.
        words: (...) int64.
        smoothing: epsilon.

    Returns:
        (...), in the precision of the scores, float32 for 16 bits.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if is_plain() or not compiled.fits(scores):
        return plain.log_likelihood(scores, words, smoothing)
    rows = _LogLikelihood.apply(scores.reshape(-1, scores.shape[-1]), words.flatten(), smoothing)
    return cast(Tensor, rows).view(words.shape)
