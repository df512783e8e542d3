"""The discriminator of HACap, which leaks what it sees to the manager (papers/000 §3.4, §4.3; LeakGAN, 2018).

    h_t = SRU(E_d y_t)                       three layers over the words, begin included                    (§4.3)
    f_t = W_d h_t                            the leaked feature of the prefix, 6 numbers
    D(y_1 .. y_t) = sigmoid(w . f_t + b)     that a caption which ends here is a person's

Where this differs from the paper, or the paper is silent:
 1. f_t is a bottleneck with the goal's dimensions, which D's own verdict reads. The goal has 6 dimensions (§4.3) and is
    held by its cosine against f_{t+c} - f_t, so that the two must have equally many; a projection that the manager
    owned would be free to collapse.
 2. An SRU over words, as the paper says, and not LeakGAN's convolutions: all prefixes are one pass, and a further word
    is one step.
 3. §3.4 lets the image context into D, §7 says that D sees text alone: `image: none` is the default. With `image: mean`
    D reads beside each word a projection of the mean of the image's vectors, and is trained with captions of other
    images as a third kind of example; §7 names its absence as the reason why fluent captions drift from the picture.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from showtell.models.linear import Embedding, Linear
from showtell.models.sru import Sru


class Discriminator(nn.Module):
    """Reads captions word by word and says after each how much the prefix is like a person's.

    Args:
        vocabulary_size: V.
        feature_size: D of the image's vectors.
        embedding_size: of a word.
        hidden_size: of each SRU layer.
        layers: of the SRU.
        leak_size: G, dimensions of the leaked feature.
        image: whether it sees the image beside each word.
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
        image: Literal["none", "mean"] = "none",
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary_size, embedding_size)  # E_d
        self.see = Linear(feature_size, embedding_size) if image == "mean" else None
        self.embedding_size = embedding_size
        self.sru = Sru(embedding_size * (1 if self.see is None else 2), hidden_size, layers=layers)
        self.leak = Linear(hidden_size, leak_size)  # W_d
        self.verdict = nn.Linear(leak_size, 1)  # w, b

    def look(self, mean: Tensor) -> Tensor | None:
        """What the image gives to the first layer at every step: its mean vector (B, 1, D) to (B, 1, 4 H)."""
        if self.see is None:
            return None
        return self.sru.first.products_of(torch.tanh(self.see(mean)), first=self.embedding_size)

    def read(self, words: Tensor) -> Tensor:
        """What words give to the first layer: (...) int64 to (..., 4 H)."""
        return self.sru.first.products_of(self.embedding(words))

    def step(
        self, products: Tensor, seen: Tensor | None, cells: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One word further.

        Args:
            products: (B, N, 4 H) from `read`.
            seen: (B, 1, 4 H) from `look`.
            cells: of `sru`.

        Returns:
            f_t, (B, N, G), and the new cells.
        """
        hidden, cells = self.sru.step(products if seen is None else products + seen, cells)
        return self.leak(hidden), cells

    def leaks(self, words: Tensor, seen: Tensor | None = None) -> Tensor:
        """f_t of every prefix of given captions, in one pass.

        Args:
            words: (B, N, T) int64, begin first.
            seen: (B, 1, 4 H) from `look`.

        Returns:
            (B, N, T, G).
        """
        products = self.read(words)
        return self.leak(self.sru.along(products if seen is None else products + seen.unsqueeze(2)))

    def logits(self, leaks: Tensor) -> Tensor:
        """w . f + b, before the sigmoid: (..., G) to (...)."""
        return self.verdict(leaks).squeeze(-1)
