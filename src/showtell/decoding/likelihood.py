"""The log-likelihood of given words under scores of the whole vocabulary, with its gradient, in few passes over them.

    log p(y) = s_y - log sum_v exp s_v
    smoothed by epsilon (Szegedy et al., 2016): (1 - epsilon) log p(y) + (epsilon / V) sum_v log p(v)

A step of training has hundreds of words times ten thousand scores: tens of megabytes, and every tensor of that size
costs as much as the arithmetic on it. torch keeps the log-probabilities of all words for the backward pass and
fills two such tensors there. Here the forward pass keeps nothing but the scores, and the backward pass makes their
gradient and nothing else, row by row where the kernels are compiled, else some rows at a time while they are in the
cache:

    d/ds_v = g ((1 - epsilon) [v = y] + epsilon / V - p(v))
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import compiled

TILE = 2**21  # scores in a tile, which should stay in the last cache


def plain_log_likelihood(scores: Tensor, words: Tensor, smoothing: float = 0.0) -> Tensor:
    """`log_likelihood` as in its formula."""
    logprobs = scores.log_softmax(-1)
    logprob = logprobs.gather(-1, words.unsqueeze(-1)).squeeze(-1)
    return logprob if not smoothing else (1 - smoothing) * logprob + smoothing * logprobs.mean(-1)


def _tiles(rows: int, size: int) -> Iterator[slice]:
    each = max(1, TILE // size)
    return (slice(first, first + each) for first in range(0, rows, each))


class _Tiled(torch.autograd.Function):
    """`plain_log_likelihood` of (M, V) scores and (M,) words, compiled or tile by tile."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, words: Tensor, smoothing: float) -> Tensor:
        ctx.smoothing = smoothing
        ctx.is_compiled = compiled.fits(scores)
        if ctx.is_compiled:
            logsumexp, sums = compiled.log_sum_exp(scores)
            ctx.save_for_backward(scores, words, logsumexp)
            logprob = scores.gather(1, words.unsqueeze(1)).squeeze(1) - logsumexp
            if not smoothing:
                return logprob
            return (1 - smoothing) * logprob + smoothing * (sums / scores.shape[1] - logsumexp)
        ctx.save_for_backward(scores, words)
        result = scores.new_empty(len(scores))
        buffer = scores.new_empty(min(len(scores), max(1, TILE // scores.shape[1])), scores.shape[1])
        for rows in _tiles(*scores.shape):
            tile = scores[rows]
            logprobs = torch.log_softmax(tile, -1, out=buffer[: len(tile)])
            logprob = logprobs.gather(1, words[rows].unsqueeze(1)).squeeze(1)
            result[rows] = logprob if not smoothing else (1 - smoothing) * logprob + smoothing * logprobs.mean(1)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        smoothing = ctx.smoothing
        if ctx.is_compiled:
            scores, words, logsumexp = ctx.saved_tensors
            return compiled.log_likelihood_backward(scores, words, logsumexp, grad_output, smoothing), None, None
        scores, words = ctx.saved_tensors
        grad_scores = torch.empty_like(scores)
        grad_output = grad_output.unsqueeze(1)
        for rows in _tiles(*scores.shape):
            tile, grad = grad_scores[rows], grad_output[rows]
            torch.softmax(scores[rows], -1, out=tile)
            if smoothing:
                tile.sub_(smoothing / scores.shape[1])
            tile.mul_(-grad).scatter_add_(1, words[rows].unsqueeze(1), (1 - smoothing) * grad)
        return grad_scores, None, None


def log_likelihood(scores: Tensor, words: Tensor, smoothing: float = 0.0) -> Tensor:
    """log p of each word.

    Args:
        scores: (..., V), before the softmax.
        words: (...) int64.
        smoothing: epsilon.

    Returns:
        (...), in the precision of the scores, float32 for 16 bits.
    """
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if scores.device.type != "cpu" or torch.compiler.is_compiling():
        return plain_log_likelihood(scores, words, smoothing)
    tiled: Tensor = _Tiled.apply(scores.reshape(-1, scores.shape[-1]), words.flatten(), smoothing)
    return tiled.view(words.shape)
