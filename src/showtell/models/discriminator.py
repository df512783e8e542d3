"""The discriminator of HACap, which leaks what it sees to the manager (papers/000 §3.4, §4.3; LeakGAN, 2018).

    x_t = E_d y_t                            or, where it sees the image, [x_t ; x_t * s_t]
    h_t = SRU(x_t)                           three layers over the words, begin included                    (§4.3)
    f_t = W_d h_t                            the leaked feature of the prefix, 6 numbers
    D(y_1 .. y_t) = sigmoid(w . f_t + b)     that a caption which ends here is a person's
    s_t = W_v mean_i a_i                                                 `image: mean`
    s_t = sum_i alpha_ti W_v a_i,  alpha_t = softmax_i(W_q x_t . W_k a_i / sqrt(E))     `image: attended`

Where this differs from the paper, or the paper is silent:
 1. f_t is a bottleneck with the goal's dimensions, which D's own verdict reads. The goal has 6 dimensions (§4.3) and is
    held by its cosine against f_{t+c} - f_t, so that the two must have equally many; a projection that the manager
    owned would be free to collapse.
 2. An SRU over words, as the paper says, and not LeakGAN's convolutions: all prefixes are one pass, and a further word
    is one step.
 3. §3.4 lets the image context into D, §7 says that D sees text alone: `image: none` is the default. With `mean` or
    `attended` D sees it, and is trained with captions of other images as a third kind of example; §7 names its absence
    as the reason why fluent captions drift from the picture. Word and image are multiplied, number by number, so that
    whether they match is a linear function of the product: with both side by side, 300 steps on scenes found 78 % of
    mismatched captions, multiplied 90 %, attended 97 % (docs/hacap.md). What is attended to depends on the word alone,
    so that all prefixes remain one pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.models.attention import masked_mean
from showtell.models.layers import Embedding, Linear
from showtell.models.sru import Sru


@dataclass(frozen=True)
class DiscriminatorImage:
    """What the discriminator sees of images."""

    values: Tensor  # (B, R, E) W_v a, or (B, 1, E) of the mean
    keys: Tensor | None = None  # (B, R, E) W_k a, where it attends
    is_region: Tensor | None = None  # (B, R) bool, where it attends


class Discriminator(nn.Module):
    """Reads captions word by word and says after each how much the prefix is like a person's.

    Args:
        vocabulary_size: V.
        feature_size: D of the image's vectors.
        embedding_size: of a word.
        hidden_size: of each SRU layer.
        layers: of the SRU.
        leak_size: G, dimensions of the leaked feature.
        image: whether it sees the image beside each word: its mean, or what the word attends to.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        feature_size: int,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        leak_size: int,
        image: Literal["none", "mean", "attended"] = "none",
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary_size, embedding_size)  # E_d
        self.value = Linear(feature_size, embedding_size) if image != "none" else None  # W_v
        self.key = Linear(feature_size, embedding_size, bias=False) if image == "attended" else None  # W_k
        self.query = Linear(embedding_size, embedding_size) if image == "attended" else None  # W_q
        self.sru = Sru(embedding_size * (1 if self.value is None else 2), hidden_size, layers=layers)
        self.leak = Linear(hidden_size, leak_size)  # W_d
        self.verdict = nn.Linear(leak_size, 1)  # w, b

    def encode_image(self, vectors: Tensor, is_region: Tensor) -> DiscriminatorImage | None:
        """What all words see of images: (B, R, D), and (B, R) whether there is a vector."""
        if self.value is None:
            return None
        if self.key is None:
            return DiscriminatorImage(self.value(masked_mean(vectors, is_region).unsqueeze(1)))
        return DiscriminatorImage(self.value(vectors), self.key(vectors), is_region)

    def embed(self, words: Tensor) -> Tensor:
        """x_t without the image: (...) int64 to (..., E)."""
        return self.embedding(words)

    def step(
        self, read: Tensor, seen: DiscriminatorImage | None, cells: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One word further.

        Args:
            read: (B, N, E) from `read`.
            seen: from `encode_image`.
            cells: of `sru`.

        Returns:
            f_t, (B, N, G), and the new cells.
        """
        hidden, cells = self.sru.step(self._products(read, seen), cells)
        return self.leak(hidden), cells

    def leaks(self, words: Tensor, seen: DiscriminatorImage | None = None) -> Tensor:
        """f_t of every prefix of given captions, in one pass.

        Args:
            words: (B, N, T) int64, begin first.
            seen: from `encode_image`.

        Returns:
            (B, N, T, G).
        """
        return self.leak(self.sru.along(self._products(self.embed(words), seen)))

    def logits(self, leaks: Tensor) -> Tensor:
        """w . f + b, before the sigmoid: (..., G) to (...)."""
        return torch.squeeze(self.verdict(leaks), -1)

    def _products(self, read: Tensor, seen: DiscriminatorImage | None) -> Tensor:
        """What words (B, ..., E), and the image with them, give to the first layer: (B, ..., 4 H)."""
        products = self.sru.first.project_input(read)
        if seen is None:
            return products
        rows = read.flatten(1, -2)  # (B, rows, E)
        if seen.keys is None:
            shown = seen.values
        else:
            assert self.query is not None and seen.is_region is not None
            shown = F.scaled_dot_product_attention(
                self.query(rows), seen.keys, seen.values, seen.is_region.unsqueeze(1)
            )
        return products + self.sru.first.project_input((rows * shown).view_as(read), offset=read.shape[-1])
