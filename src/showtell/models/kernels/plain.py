"""The plain forms: the kernels' definitions in ordinary torch, and the switch that selects them."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Literal["tanh", "relu"]  # Function between the sum of two projections and its score.
ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}

_is_plain = contextvars.ContextVar("is_plain", default=os.environ.get("SHOWTELL_KERNELS") == "plain")


def is_plain() -> bool:
    """Whether the plain forms run."""
    return _is_plain.get()


@contextlib.contextmanager
def plain_kernels(enabled: bool = True) -> Iterator[None]:
    """Inside the block the plain forms run, or, with False, the fast ones."""
    token = _is_plain.set(enabled)
    try:
        yield
    finally:
        _is_plain.reset(token)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, offset: int = 0) -> Tensor:
    """x W' + b with the columns of W from `offset` on."""
    return F.linear(x, weight[:, offset : offset + x.shape[-1]], bias)


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = "tanh") -> Tensor:
    """e_i = w . f(p_i + q): p (B, R, A), q (B, N, A) and w, (A) or (1, A), to (B, N, R); it allocates (B, N, R, A)."""
    return ACTIVATIONS[activation](projected.unsqueeze(1) + query.unsqueeze(2)) @ weight.view(-1)


def log_likelihood(scores: Tensor, words: Tensor, smoothing: float = 0.0) -> Tensor:
    """log p(y) = s_y - log sum_v exp s_v, smoothed by e: (1 - e) log p(y) + (e / V) sum_v log p(v).

    Smoothing is that of Szegedy et al., 2016.

    Args:
        scores: s, (..., V), before the softmax.
        words: y, (...) int64.
        smoothing: e.

    Returns:
        (...), in the precision of the scores, float32 for 16 bits.
    """
    logprobs = scores.log_softmax(-1, dtype=torch.float32 if scores.element_size() == 2 else None)
    logprob = logprobs.gather(-1, words.unsqueeze(-1)).squeeze(-1)
    return logprob if not smoothing else (1 - smoothing) * logprob + smoothing * logprobs.mean(-1)
