"""Layers of decoders: torch's linear layer, computed by `kernels/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from showtell.models.kernels import linear


class Linear(nn.Linear):
    """torch's linear layer, faster for decoders (`kernels/onednn.py`)."""

    if TYPE_CHECKING:

        def __call__(self, input: Tensor) -> Tensor: ...  # noqa: D102

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return linear(input, self.weight, self.bias)


def feature_projection(feature_size: int, size: int | None, *behind: nn.Module) -> nn.Module:
    """A linear layer with ReLU over feature vectors, or the identity where there is no size (`project_features`)."""
    return nn.Identity() if size is None else nn.Sequential(Linear(feature_size, size), nn.ReLU(), *behind)
