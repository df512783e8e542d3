"""One stage of a multi-stage decoder as a decoder: every search and every walk works on it unchanged.

All stages are stepped, as the first reads the last one's hidden vector of the step before. What differs is whose words
are generated, and so fed back, and whose attention is reported.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor

from showtell.errors import UsageError
from showtell.models.contract import Decoder, Output, State
from showtell.types import Features


class StageView(Decoder):
    """One stage of a decoder as a decoder. It shares the weights and adds none."""

    def __init__(self, decoder: Decoder, stage: int) -> None:
        """View a decoder at a stage, counted from 0, -1 the last; a UsageError if the decoder has no such stage."""
        super().__init__()
        if not -decoder.stages <= stage < decoder.stages:
            has = "one stage, 0" if decoder.stages == 1 else f"stages 0 to {decoder.stages - 1}"
            raise UsageError(f"There is no stage {stage}: the model has {has}.")
        self.config = decoder.config
        self.decoder = decoder
        self.stage = stage
        self.training = decoder.training

    @property
    def stages(self) -> int:
        """One: the view has a single stage."""
        return 1

    def start(self, features: Features) -> State:
        """The state of all stages."""
        return self.decoder.start(features)

    def embed(self, words: Tensor) -> Any:
        """The part of a step of all stages that depends on words alone."""
        return self.decoder.embed(words)

    def step(self, words: Any, state: State) -> tuple[Output, State]:
        """One step of all stages. The output's attention and sampled regions are those of the stage."""
        output, state = self.decoder.step(words, state)
        return self._own(output), state

    def all_steps(self, words: Tensor, state: State) -> tuple[Output, State]:
        """All steps of all stages."""
        output, state = self.decoder.all_steps(words, state)
        return self._own(output), state

    def _own(self, output: Output) -> Output:
        if not output.stages:
            return output
        own = output.stages[self.stage]
        return dataclasses.replace(output, attention=own.attention, sampled_regions=own.sampled_regions)

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The logits of the stage, (..., V)."""
        return self.decoder.readout(output, self.stage)
