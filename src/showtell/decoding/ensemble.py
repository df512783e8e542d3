"""Several decoders as one: the probabilities of their next words are averaged.

Every member reads the same words and keeps its own state and its own features: members may be different models over
different encoders. They must share a vocabulary, which is for the caller to check: a decoder knows ids,
not words.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from pydantic import Field
from torch import Tensor, nn

from showtell.errors import UsageError
from showtell.models.capabilities import DecoderConfig
from showtell.models.contract import Decoder, Output, State
from showtell.types import EnsembleFeatures, Features


@dataclass(frozen=True, kw_only=True)
class EnsembleOutput(Output):
    """The output of each member. `attention` is None: the members may attend to different regions."""

    members: tuple[Output, ...]


class EnsembleConfig(DecoderConfig):
    """The settings of the members."""

    name: str = Field("Ensemble", description="Name that is shown for an ensemble.")
    members: tuple[DecoderConfig, ...] = Field(description="Settings of each decoder.")


class Ensemble(Decoder):
    """A decoder made of decoders: p(word) = mean over members of p_m(word)."""

    def __init__(self, members: Sequence[Decoder]) -> None:
        super().__init__()
        if not members:
            raise UsageError("An ensemble needs at least one member.")
        self.config = EnsembleConfig(members=tuple(member.config for member in members))
        self.members = nn.ModuleList(members)

    @property
    def _decoders(self) -> tuple[Decoder, ...]:
        return tuple(cast(Decoder, member) for member in self.members)

    def start(self, features: Features) -> State:
        """The members' states. With plain features all look at the same."""
        encoded = (features,) * len(self.members)
        if isinstance(features, EnsembleFeatures):
            encoded = (Features(features.vectors, features.is_region, features.regions), *features.others)
            if len(encoded) != len(self.members):
                raise UsageError(f"An ensemble of {len(self.members)} got the features of {len(encoded)} encoders.")
        states = [member.start(own) for member, own in zip(self._decoders, encoded, strict=True)]
        return State(tuple(state.image for state in states), tuple(state.rows for state in states))

    def step(self, words: Tensor, state: State) -> tuple[EnsembleOutput, State]:
        """One step of every member."""
        before = map(State, state.image, state.rows)
        stepped = [member.step(words, own) for member, own in zip(self._decoders, before, strict=True)]
        after = State(tuple(state.image for _, state in stepped), tuple(state.rows for _, state in stepped))
        return EnsembleOutput(members=tuple(output for output, _ in stepped)), after

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The logarithm of the averaged probabilities, (..., V)."""
        assert isinstance(output, EnsembleOutput)
        readouts = (member.readout(own) for member, own in zip(self._decoders, output.members, strict=True))
        logprobs = (logits.log_softmax(-1, dtype=torch.float32) for logits in readouts)
        return functools.reduce(torch.logaddexp, logprobs) - math.log(len(self.members))
