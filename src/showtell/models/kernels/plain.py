"""The plain forms: the kernels' definitions in ordinary torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, offset: int = 0) -> Tensor:
    """x W' + b with the columns of W from `offset` on."""
    return F.linear(x, weight[:, offset : offset + x.shape[-1]], bias)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Rows of a table."""
    return F.embedding(ids, table)


def weighted_sum(alpha: Tensor, vectors: Tensor) -> Tensor:
    """sum_i alpha_i v_i."""
    return torch.bmm(alpha, vectors)


@dataclass(frozen=True)
class Activation:
    """f(x) = factor s(inner x) + shift, by a function s that is fast, with f'(x) = steepness slope(s(inner x))."""

    plain: Callable[[Tensor], Tensor]  # f
    squash: Callable[[Tensor], Tensor]  # s, an in-place operation
    slope: Callable[[Tensor], Tensor]  # an in-place operation
    inner: float = 1.0
    factor: float = 1.0
    shift: float = 0.0
    steepness: float = 1.0


# tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is six times as fast as its tanh on a CPU. The error is that of
# float32 numbers near 1 (6e-8), as it is for the tanh of all but small x.
TANH = Activation(
    torch.tanh, torch.sigmoid_, lambda s: s.addcmul_(s, s, value=-1), inner=2.0, factor=2.0, shift=-1.0, steepness=4.0
)
RELU = Activation(torch.relu, torch.relu_, torch.Tensor.sign_)
ACTIVATIONS = {"tanh": TANH, "relu": RELU}  # those of `additive_scores`, by name


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = TANH) -> Tensor:
    """e_i = w . f(p_i + q). It allocates a tensor of (B, N, R, A).

    Args:
        projected: p, (B, R, A).
        query: q, (B, N, A).
        weight: w, (A) or (1, A).
        activation: f.

    Returns:
        (B, N, R).
    """
    return activation.plain(projected.unsqueeze(1) + query.unsqueeze(2)) @ weight.view(-1)


def lstm_gates(gates: Tensor, recurrent: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """c' = f * c + i * g and h' = o * tanh(c'), with i, f, g, o in gates + recurrent."""
    i, f, g, o = (gates + recurrent).chunk(4, -1)  # torch's order
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # papers/003 §3.1.2: c_t
    return torch.sigmoid(o) * torch.tanh(cell), cell  # papers/003 §3.1.2: h_t
