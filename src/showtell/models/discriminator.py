"""HACap's discriminator, which leaks a feature of the prefix to the manager (HACap §3.4, §4.3; LeakGAN, 2018), and
what adversarial objectives need of the decoder that follows the manager.

    x_t = E_d y_t                            or, with an image input,      [x_t ; x_t * s_t]
    h_t = SRU(x_t)                           three layers over the words, begin included                    (§4.3)
    f_t = W_d h_t                            the leaked feature of the prefix, 6 numbers
    D(y_1 .. y_t) = sigmoid(w . f_t + b)     probability that the prefix is a human caption
    s_t = W_v mean_i a_i                                                 `image: mean`
    s_t = sum_i alpha_ti W_v a_i,  alpha_t = softmax_i(W_q x_t . W_k a_i / sqrt(E))     `image: attended`

Where this differs from the paper, or the paper is silent:
 1. f_t is a bottleneck with the goal's dimensions, which D's output layer reads. The goal has 6 dimensions (§4.3) and
    is compared with f_{t+c} - f_t by cosine, so both need the same size; a projection that belongs to the manager could
    collapse.
 2. An SRU over words, as the paper says, instead of LeakGAN's convolutions: one pass computes all prefixes, one step
    adds a word.
 3. §3.4 gives the image context to D, §7 says that D sees text alone: `discriminator_image` is `none` by default. With
    `mean` or `attended` the image is an input of D, and captions of other images are a third kind of training example;
    §7 names the missing image as the reason why fluent captions drift from the picture. Word and image are multiplied
    elementwise, so that a match is a linear function of the product: after 300 steps on scenes D recognised 78 % of
    mismatched captions with the two concatenated, 90 % multiplied, 97 % attended (docs/hacap.md). The attention depends
    on the word alone, so that one pass still computes all prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.models.attention import masked_mean
from showtell.models.contract import Decoder, ImageT, InputsT, Output, RowsT
from showtell.models.layers import Linear
from showtell.models.sru import Sru


@dataclass(frozen=True)
class DiscriminatorImage:
    """Images, encoded for the discriminator."""

    values: Tensor  # (B, R, E) W_v a, or (B, 1, E) of the mean
    keys: Tensor | None = None  # (B, R, E) W_k a, where it attends
    is_region: Tensor | None = None  # (B, R) bool, where it attends


class Discriminator(nn.Module):
    """An SRU over words that scores after each one how likely the prefix is a human caption; G is `leak_size`."""

    def __init__(
        self, *, vocabulary_size: int, feature_size: int, embedding_size: int, hidden_size: int, layers: int,
        leak_size: int, image: Literal["none", "mean", "attended"] = "none",
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, embedding_size)  # E_d
        self.value = Linear(feature_size, embedding_size) if image != "none" else None  # W_v
        self.key = Linear(feature_size, embedding_size, bias=False) if image == "attended" else None  # W_k
        self.query = Linear(embedding_size, embedding_size) if image == "attended" else None  # W_q
        self.sru = Sru(embedding_size * (1 if self.value is None else 2), hidden_size, layers=layers)
        self.leak = Linear(hidden_size, leak_size)  # W_d
        self.verdict = nn.Linear(leak_size, 1)  # w, b

    def encode_image(self, vectors: Tensor, is_region: Tensor) -> DiscriminatorImage | None:
        """Encode images once for all words: vectors (B, R, D) and is_region (B, R)."""
        if self.value is None:
            return None
        if self.key is None:
            return DiscriminatorImage(self.value(masked_mean(vectors, is_region).unsqueeze(1)))
        return DiscriminatorImage(self.value(vectors), self.key(vectors), is_region)

    def step(
        self, embedded: Tensor, image: DiscriminatorImage | None, cells: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read one more word, (B, N, E) from `embedding`, to f_t, (B, N, G), and the new cells of `sru`."""
        hidden, cells = self.sru.step(self._products(embedded, image), cells)
        return self.leak(hidden), cells  # HACap §4.3: f_t

    def leaked_features(self, words: Tensor, image: DiscriminatorImage | None = None) -> Tensor:
        """f_t of every prefix of given captions in one pass: (B, N, T) int64, begin first, to (B, N, T, G)."""
        return self.leak(self.sru(self._products(self.embedding(words), image)))

    def logits(self, leaked: Tensor) -> Tensor:
        """w . f + b, before the sigmoid: (..., G) to (...)."""
        return torch.squeeze(self.verdict(leaked), -1)  # HACap §3.4: D

    def _products(self, embedded: Tensor, image: DiscriminatorImage | None) -> Tensor:
        """The first layer's products of words (B, ..., E) and of the image: (B, ..., 4 H)."""
        products = self.sru.first.project_input(embedded)
        if image is None:
            return products
        rows = embedded.flatten(1, -2)  # (B, rows, E)
        if image.keys is None:
            attended = image.values
        else:
            assert self.query is not None and image.is_region is not None
            attended = F.scaled_dot_product_attention(
                self.query(rows), image.keys, image.values, image.is_region.unsqueeze(1)
            )
        return products + self.sru.first.project_input((rows * attended).view_as(embedded), offset=embedded.shape[-1])


@dataclass(frozen=True, kw_only=True)
class GoalOutput(Output):
    """The output of a step with a subgoal."""

    goal: Tensor | None = None  # (B, N, G) g_t, with its gradient to the manager; None without goals


class GoalDecoder(Decoder[InputsT, ImageT, RowsT]):
    """A decoder that, with `Capability.GOALS`, follows a manager's subgoals, computed from the leaked feature."""

    discriminator: Discriminator
    horizon: int  # c, the number of steps that a subgoal looks ahead
