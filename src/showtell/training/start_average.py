"""The weights that are validated and kept as best/: those that learned, averaged with those of the start.

    theta = (1 - s) theta_learned + s theta_start          Wortsman et al. 2022, eq. 1, with s = 1 - alpha

On photos of the start's kind such an average forgets far less than what was learned, and keeps most of what it learned
of new ones (Wortsman et al., "Robust fine-tuning of zero-shot models", CVPR 2022). It costs training nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class StartAverage:
    """The starting weights of what learns in a model, averaged in by `share`; with 0 none are kept."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        learning = model.named_parameters() if share else ()
        self._weights = {name: weight for name, weight in learning if weight.requires_grad}
        self.start = {name: weight.detach().clone() for name, weight in self._weights.items()}

    def load(self, start: Mapping[str, Tensor]) -> None:
        """Take the starting weights of a run that resumes."""
        for name, weight in start.items():
            self.start[name].copy_(weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside the block the model has the average; behind it what it learned, bit by bit."""
        learned = {name: weight.detach().clone() for name, weight in self._weights.items()}
        try:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.lerp_(self.start[name], self.share)
            yield
        finally:
            with torch.no_grad():
                for name, weight in self._weights.items():
                    weight.copy_(learned[name])
