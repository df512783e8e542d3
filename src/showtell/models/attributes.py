"""Attributes: the words that fit an image, scored from its regions before any word is said, as an input of a decoder.

    s_w = log sum_i exp(u_w . a_i + b_w),  P_w = sigmoid(s_w)        how likely a caption has the word w
    q = W_q P                                                        an input of the LSTM at every step

papers/002 names "integrating extra attributes learning" as future work, after Wu et al. (CVPR 2016), You et al. (CVPR
2016) and Yao et al. (ICCV 2017). `model.attributes: true` adds it; `objective.word_presence` trains u and b.

Where this differs from those papers:
 1. Their attributes come from networks of their own, fine-tuned before the captioner with noisy-or over regions (Fang
    et al., 2015). Ours are one linear layer over the decoder's features, trained with the captioner, and log-sum-exp.
 2. They choose 256 to 1,000 frequent words; P has all words of the vocabulary, weighted in the loss by how far the
    captions of an image agree on them (`objectives/cross_entropy.py`).
 3. Wu et al. give P to the LSTM once, as its first input, You et al. attend to the ten likeliest words at each step,
    Yao et al. compare five placements. Ours is constant over the steps and beside the word in each of them.
 4. The likelihood gives u, b and the features no gradient through P, so that P remains a score of words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from showtell.models.layers import Linear
from showtell.text.vocabulary import SPECIAL
from showtell.types import Features

ATTRIBUTES = (  # what the setting `attributes` of a decoder does
    "Feed the probabilities of words, scored from the regions (papers/002, future work); they learn by "
    "`objective.word_presence`."
)
WORD_BIAS = -6.0  # b before training: few words occur, and with 36 cells each starts at 8%


def score_images(region_scores: Tensor, is_region: Tensor) -> Tensor:
    """s, the soft maximum over regions: (B, R, V) and (B, R) bool to (B, V)."""
    return region_scores.masked_fill(~is_region.unsqueeze(-1), float("-inf")).logsumexp(1)


class Attributes(nn.Module):
    """Scores of words from regions, and their embedding.

    Args:
        feature_size: D of the features, as the encoder makes them.
        vocabulary_size: V.
        embedding_size: of q.
    """

    if TYPE_CHECKING:

        def __call__(self, features: Features) -> Tensor: ...  # noqa: D102

    def __init__(self, *, feature_size: int, vocabulary_size: int, embedding_size: int) -> None:
        super().__init__()
        self.scores = nn.Linear(feature_size, vocabulary_size)  # u, b of each word
        self.embedding = Linear(vocabulary_size - len(SPECIAL), embedding_size, bias=False)  # W_q

    def initialise(self) -> None:
        """Xavier uniform; b = `WORD_BIAS`."""
        nn.init.xavier_uniform_(self.scores.weight)
        nn.init.constant_(self.scores.bias, WORD_BIAS)
        nn.init.xavier_uniform_(self.embedding.weight)

    @torch.no_grad()
    def probabilities(self, features: Features) -> Tensor:
        """P, without gradient: (B, V), in which the marks of `SPECIAL` mean nothing."""
        return score_images(self.scores(features.vectors), features.is_region).sigmoid()

    def forward(self, features: Features) -> Tensor:
        """q, (B, 1, E)."""
        return self.embedding(self.probabilities(features)[:, len(SPECIAL) :]).unsqueeze(1)
