"""Additive attention, the part that most of the papers share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, is_region: Tensor) -> Tensor:
    """Softmax over the regions that exist.

    Args:
        scores: (B, N, R).
        is_region: (B, R) bool.

    Returns:
        (B, N, R) weights; 0 where there is no region.
    """
    return scores.masked_fill(~is_region.unsqueeze(1), float("-inf")).softmax(-1)


def masked_mean(vectors: Tensor, is_region: Tensor) -> Tensor:
    """The mean of the vectors that exist: (B, R, D) and (B, R) to (B, D)."""
    present = is_region.unsqueeze(-1).to(vectors.dtype)
    return (vectors * present).sum(1) / present.sum(1)


class AdditiveAttention(nn.Module):
    """e_i = w . tanh(W_a a_i + W_h h + b), alpha = softmax(e) (papers/003 §3.1.2, f_att as one hidden layer).

    W_a a_i + b does not depend on the words: `project` computes it once per image.
    """

    def __init__(self, *, feature_size: int, query_size: int, attention_size: int) -> None:
        super().__init__()
        self.of_features = nn.Linear(feature_size, attention_size)
        self.of_query = nn.Linear(query_size, attention_size, bias=False)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project(self, vectors: Tensor) -> Tensor:
        """W_a a + b: (B, R, D) to (B, R, A)."""
        return self.of_features(vectors)

    def forward(self, query: Tensor, projected: Tensor, is_region: Tensor) -> Tensor:
        """The weights alpha.

        Args:
            query: (B, N, H), what each row asks with.
            projected: (B, R, A) from `project`.
            is_region: (B, R) bool.

        Returns:
            (B, N, R).
        """
        hidden = torch.tanh(projected.unsqueeze(1) + self.of_query(query).unsqueeze(2))  # (B, N, R, A)
        return masked_softmax(self.score(hidden).squeeze(-1), is_region)
