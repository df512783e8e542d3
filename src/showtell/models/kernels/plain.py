"""The plain forms: the kernels' definitions in ordinary torch."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Literal["tanh", "relu"]  # Function between the sum of two projections and its score.
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, offset: int = 0) -> Tensor:
    """x W' + b with the columns of W from `offset` on."""
    return F.linear(x, weight[:, offset : offset + x.shape[-1]], bias)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of a table."""
    return F.embedding(ids, table)


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = "tanh") -> Tensor:
    """e_i = w . f(p_i + q). It allocates a tensor of (B, N, R, A).

    Args:
        projected: p, (B, R, A).
        query: q, (B, N, A).
        weight: w, (A) or (1, A).
        activation: f.

    Returns:
        (B, N, R).
    """
    return ACTIVATIONS[activation](projected.unsqueeze(1) + query.unsqueeze(2)) @ weight.view(-1)


def log_likelihood(scores: Tensor, words: Tensor, smoothing: float = 0.0) -> Tensor:
    """log p(y) = s_y - log sum_v exp s_v, smoothed by e: (1 - e) log p(y) + (e / V) sum_v log p(v)."""
    logprobs = scores.log_softmax(-1)
    logprob = logprobs.gather(-1, words.unsqueeze(-1)).squeeze(-1)
    return logprob if not smoothing else (1 - smoothing) * logprob + smoothing * logprobs.mean(-1)
