"""Encoder, decoder and objective as one module, so that one forward call is one loss."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from showtell.cuda_graphs import Steps
from showtell.features import Encoder
from showtell.models import Decoder
from showtell.objectives import Objective
from showtell.training.mentions import locate
from showtell.types import Batch, Terms


class TrainingModel(nn.Module):
    """Encoder, decoder and objective of a run."""

    def __init__(self, encoder: Encoder, decoder: Decoder, objective: Objective) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.objective = objective
        self.encoder_learns = True  # false: the encoder is frozen for now

    def train(self, mode: bool = True) -> TrainingModel:
        """Set the mode; an encoder that does not learn yet stays in eval mode, batch norm included."""
        super().train(mode)
        self.encoder.train(mode and self.encoder_learns)
        return self

    def steps(self, batch: Batch) -> Steps[Terms]:
        """The terms of one batch, from its photos or from their stored features (`Objective.steps`)."""
        if batch.features is None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.encoder_learns):
                features = self.encoder(batch.prepared)
        else:
            features = batch.features
        if batch.mentions is not None:
            batch = replace(batch, mentions=locate(batch.mentions, self.encoder, features))
        return self.objective.steps(batch, features, self.decoder)
