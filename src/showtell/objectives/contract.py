"""What an objective is: batch, features and decoder to named terms. It knows no model, only what `output` carries."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from torch import nn

from showtell.models.contract import Decoder
from showtell.types import Batch, Features, Terms


class Objective(nn.Module, abc.ABC):
    """What is minimised. Its own parameters train with the model; its state is kept in `last/training/` alone."""

    def prepare(self, captions: Sequence[Sequence[Sequence[int]]]) -> None:
        """Learn what there is to know of the training captions before the first step; nothing by default.

        Args:
            captions: for each image, for each of its captions, the ids of its words, `begin` and `end` included.
        """

    @abc.abstractmethod
    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of one batch."""
