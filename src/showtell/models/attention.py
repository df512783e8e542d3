"""Additive attention, which most of the papers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from showtell.models.kernels import Activation, additive_scores
from showtell.models.layers import Linear


def masked_softmax(scores: Tensor, is_region: Tensor) -> Tensor:
    """Softmax over regions, padding masked: (B, N, R) and (B, R) bool to (B, N, R), 0 for padding."""
    # Xu et al. 2015, §3.1.2: alpha_ti; Boustany and Sarfati, §2.2: alpha
    return scores.masked_fill(~is_region.unsqueeze(1), float("-inf")).softmax(-1)


def masked_mean(vectors: Tensor, is_region: Tensor) -> Tensor:
    """The mean over regions, padding masked: (B, R, D) and (B, R) to (B, D)."""
    present = is_region.unsqueeze(1).to(vectors.dtype)  # (B, 1, R)
    return torch.bmm(present, vectors).squeeze(1) / present.sum(-1)


class AdditiveAttention(nn.Module):
    """e_i = w . f(W_a a_i + W_h h + b), alpha = softmax(e) (Xu et al. 2015, §3.1.2); f is tanh or ReLU (HACap §3.5)."""

    if TYPE_CHECKING:

        def __call__(self, query: Tensor, projected: Tensor, is_region: Tensor) -> Tensor: ...  # noqa: D102

    def __init__(
        self, *, feature_size: int, query_size: int, attention_size: int, bias: bool = True,
        activation: Activation = "tanh",
    ) -> None:  # fmt: skip
        super().__init__()
        self.activation = activation
        self.of_features = Linear(feature_size, attention_size, bias=bias)
        self.of_query = Linear(query_size, attention_size, bias=False)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project(self, vectors: Tensor) -> Tensor:
        """W_a a + b, which no word changes: (B, R, D) to (B, R, A)."""
        return self.of_features(vectors)

    def scores(self, query: Tensor, projected: Tensor) -> Tensor:
        """e: (B, N, H) and (B, R, A) to (B, N, R)."""
        # Xu et al. 2015, §3.1.2: e_ti; Boustany and Sarfati, §2.2: e
        # Anderson et al. 2018, eq. 3: a_t; Gu et al. 2018, eq. 7: A^i
        return additive_scores(projected, self.of_query(query), self.score.weight, self.activation)

    def forward(self, query: Tensor, projected: Tensor, is_region: Tensor) -> Tensor:
        """The weights alpha, (B, N, R), of a query of each row, (B, N, H), over projected vectors, (B, R, A)."""
        return masked_softmax(self.scores(query, projected), is_region)
