"""Layers of decoders: torch's linear layer and embedding, computed by `kernels/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from showtell.models.kernels import embedding, linear


class Linear(nn.Linear):
    """torch's linear layer, faster for decoders (`kernels/linear.py`)."""

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...  # noqa: D102

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return linear(input, self.weight, self.bias)


class Embedding(nn.Embedding):
    """torch's embedding with an accumulated gradient; without torch's options (max_norm, sparse, ...)."""

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...  # noqa: D102

    def forward(self, input: Tensor) -> Tensor:
        """(...) int64 to (..., E)."""
        return embedding(input, self.weight)


def scalar_gate(x: Tensor) -> Tensor:
    """The sigmoid of a number for each row, (B, N) or (B, N, 1).

    On a CPU torch takes 32 numbers at a time by one function and the rest by another, whose last bits are not the same:
    those of a row would depend on how many there are. In double precision both round to the same float32.
    """
    return torch.sigmoid(x.double()).to(x.dtype)
