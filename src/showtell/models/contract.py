"""The contract of a decoder: what it can do, one step at a time, and along given words; `decoding/` has other walks.

Objectives, recipes and tests ask for a capability and not for the name of a model.

    state = decoder.start(features)              # everything that does not depend on the last word, once
    output, state = decoder.step(words, state)   # words (B, N): one step for all rows of all images
    logits = decoder.readout(output)             # (..., V); over stacked outputs it is one matrix product
    logits = decoder.readout(output, stage)      # of an earlier stage, where a model has several
    inputs = decoder.embed(words)                # words known in advance: their part of all steps at once
    outputs, state = decoder.all_steps(words, state)    # or all of it, words (B, N, T), with `Capability.PARALLEL`
    logits = decoder(features, words)            # or plainly: the logits behind given words

State has two halves: what belongs to an image, (B, ...), which is never copied, and what belongs to a row (a caption,
sample or beam of it), (B, N, ...). A search that reorders beams touches the rows alone.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Generic

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import TypeVar

from showtell import counter_rng
from showtell.config import Config
from showtell.types import Features, map_tensors, stack_over_time, unstack


class Capability(StrEnum):
    """An ability that some decoders have. The value ends a sentence that begins with "a model"."""

    ATTENTION = "that attends to regions"
    SAMPLED_ATTENTION = "that samples the regions it attends to"
    STAGES = "with several stages"
    GOALS = "with subgoals and a discriminator"
    MANAGER = "with a manager of subgoals"
    LABELS = "that scores a caption's words as labels"
    PARALLEL = "that reads all words of a caption at once"


class DecoderConfig(Config):
    """The settings of a decoder, and what a decoder with these settings can do."""

    # Each capability that a decoder of this class may have, with the settings that it takes; {} if it always has it.
    provides: ClassVar[Mapping[Capability, Mapping[str, Any]]] = {}

    name: str = Field(description="Name of the model; a subclass gives the default.")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of a decoder with these settings."""
        return frozenset(capability for capability in self.provides if not self.missing_settings(capability))

    @property
    def stages(self) -> int:
        """The number of distributions of the next word that a step has, from coarse to fine."""
        return 1

    def missing_settings(self, capability: Capability) -> dict[str, Any]:
        """The settings, of those that a capability takes, that have another value here: key to current value."""
        required = self.provides.get(capability, {})
        return {key: getattr(self, key) for key, value in required.items() if getattr(self, key) != value}


def as_overrides(settings: Mapping[str, Any]) -> str:
    """Settings of a model as a recipe's overrides: "model.name=hacap and model.goals=true"."""
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return " and ".join(f"model.{key}={value}" for key, value in values.items())


# Searches take any decoder and do not use the fields of its records: without type arguments they are opaque to mypy.
InputsT = TypeVar("InputsT", default=Any)  # the output of `embed`
ImageT = TypeVar("ImageT", default=Any)  # the half of the state that belongs to an image
RowsT = TypeVar("RowsT", default=Any)  # the half that belongs to a row


@dataclass(frozen=True)
class State(Generic[ImageT, RowsT]):
    """The state of a decoder between two steps. Both halves are frozen records of tensors that the model defines.

    Rows may grow with the words that they have read. A mask of their own then says what is there, because rows that
    have read fewer words than others are padded with 0 (`decoding/continuation.py`).
    """

    image: ImageT  # tensors (B, ...)
    rows: RowsT  # tensors (B, N, ...)


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of a step, (B, N, ...); `decoding` stacks it over time to (B, N, T, ...). Models add their fields."""

    attention: Tensor | None = None  # (B, N, R) alpha, weights that sum to one; None for models without attention
    sampled_regions: Tensor | None = None  # (B, N) int64, the region that hard attention selected; -1: the expectation
    stages: tuple[Output, ...] = ()  # the output of each stage, the last one last; may be () for one stage

    def diagnostics(self) -> dict[str, Tensor]:
        """Further numbers of each step that explanations show, by name: (B, N, K) each."""
        return {}


@dataclass(frozen=True, kw_only=True)
class HiddenOutput(Output):
    """The input of an output layer."""

    hidden: Tensor  # (B, N, H)


class Decoder(nn.Module, abc.ABC, Generic[InputsT, ImageT, RowsT]):
    """A language model conditioned on image features. A model fixes the types of its records in its base class."""

    config: DecoderConfig  # kept in the checkpoint, enough to build it again
    # Whether steps of one shape do the same with other tensors and wait for none, so that they can be captured
    # (`cuda_graphs.py`).
    has_fixed_shapes: bool = True

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Its capabilities."""
        return self.config.capabilities

    @property
    def stages(self) -> int:
        """The number of distributions of the next word that a step has, from coarse to fine."""
        return self.config.stages

    @abc.abstractmethod
    def start(self, features: Features) -> State[ImageT, RowsT]:
        """The state before the first word, with one row per image, (B, 1, ...)."""

    def embed(self, words: Tensor) -> InputsT:
        """The part of a step that depends on its word alone; `step` takes it instead of the word.

        Where words are known in advance it is computed for all of them at once. By default the words themselves.

        Args:
            words: (...) int64.

        Returns:
            A record of tensors (..., ...).
        """
        return words  # type: ignore[return-value]

    @abc.abstractmethod
    def step(self, words: Tensor | InputsT, state: State[ImageT, RowsT]) -> tuple[Output, State[ImageT, RowsT]]:
        """Read the last words, (B, N) int64 or the output of `embed` for them, and advance by one step."""

    def all_steps(self, words: Tensor, state: State[ImageT, RowsT]) -> tuple[Output, State[ImageT, RowsT]]:
        """Read given words, (B, N, T) int64, in one pass; with `Capability.PARALLEL`.

        For models none of whose steps needs the output of the step before. Outputs, (B, N, T, ...), and the state are
        those of T calls of `step`; dropout draws other masks, which depend on an image's own words alone as well.
        """
        raise NotImplementedError(f"no model {Capability.PARALLEL}")

    @abc.abstractmethod
    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The logits of the next word, (..., V).

        Args:
            output: of a step, or of several stacked.
            stage: index of the stage; models with one ignore it.
        """

    def forward(self, features: Features, words: Tensor) -> Tensor:
        """The logits of the word behind each of given ones, which begin with `Vocabulary.begin`, teacher-forced.

        Words (B, T) int64 give (B, T, V); N captions of each image, (B, N, T), give (B, N, T, V).
        """
        if words.dim() == 2:
            return self(features, words.unsqueeze(1)).squeeze(1)  # type: ignore[no-any-return]  # torch's __call__
        return self.readout(self.forced_outputs(features, words))

    def forced_outputs(self, features: Features, words: Tensor) -> Output:
        """The outputs (B, N, T, ...) for given words, (B, N, T), before any readout."""
        state = spread(self.start(features), words.shape[1])
        if Capability.PARALLEL in self.capabilities:
            return self.all_steps(words, state)[0]
        outputs = []
        for last in counter_rng.timesteps(unstack(self.embed(words.movedim(-1, 0)))):
            output, state = self.step(last, state)
            outputs.append(output)
        return stack_over_time(outputs)

    def score_labels(self, output: Output) -> Tensor:
        """Scores of all words as labels of the caption at a step, (..., V); with `Capability.LABELS`."""
        raise NotImplementedError(f"no model {Capability.LABELS}")


@contextlib.contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Inside the block a module is in eval mode, as decoder and encoder are when photos are captioned."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def spread(state: State[ImageT, RowsT], rows: int) -> State[ImageT, RowsT]:
    """The state with its single row repeated: (B, 1, ...) to (B, N, ...). The image half is shared."""
    return State(state.image, map_tensors(state.rows, lambda x: x.expand(-1, rows, *x.shape[2:]).contiguous()))


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of each image: x (B, N, ...) and rows (B, K) int64 to (B, K, ...)."""
    first = torch.arange(0, x.shape[0] * x.shape[1], x.shape[1], device=rows.device)  # row of each image, of all rows
    return x.flatten(0, 1).index_select(0, (first.unsqueeze(1) + rows).flatten()).view(*rows.shape, *x.shape[2:])


def take_rows(state: State[ImageT, RowsT], parents: Tensor) -> State[ImageT, RowsT]:
    """The state whose row n of image b is the old row parents[b, n]. parents (B, N) int64."""
    return State(state.image, map_tensors(state.rows, lambda x: gather_rows(x, parents)))
