"""The interface of an objective: batch, features and decoder to named terms.

Objectives do not depend on a model: they declare the capabilities that they need and read the fields of `Output`.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from pydantic import Field
from torch import nn

from showtell.config import Config
from showtell.cuda_graphs import Steps
from showtell.models import Capability, Decoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Counts, Features, NamingWords, Terms


class ObjectiveConfig(Config):
    """The settings of an objective."""

    name: str = Field(description="Name of the objective; a subclass gives the default.")


class Objective(nn.Module, abc.ABC):
    """A loss. Its own parameters are trained with the model; its state is saved in `last/training/` only."""

    config: ObjectiveConfig
    # Capabilities that a model must have, and those that it must not have, with the reason. Recipes are checked
    # against them (`compatibility.py`).
    needs: ClassVar[frozenset[Capability]] = frozenset()
    conflicts: ClassVar[Mapping[Capability, str]] = {}
    # Settings, by the capability whose layers they train: for a model that has it, they must not be 0.
    setting_trains: ClassVar[Mapping[Capability, str]] = {}
    setting_needs: ClassVar[Mapping[str, Capability]] = {}  # settings (dotted) without effect where the model lacks one

    # A reward instead of the captions' likelihood: `training/health.py` then compares captions with those of the start.
    optimises_reward: ClassVar[bool] = False
    # Whether steps of one shape do the same with other tensors and wait for none, so that they can be captured
    # (`cuda_graphs.py`). An objective has to say so.
    has_fixed_shapes: bool = False
    variant: Hashable = None  # what of the present step is no tensor and may be different in the next
    supervised_words: NamingWords | None = None  # the words whose objects batches need to know (`Batch.mentions`)

    def prepare(self, captions: Mapping[str, Sequence[Sequence[int]]], max_length: int) -> None:
        """Use the training captions before the first step; by default only `max_length`, without `end`, is kept.

        `captions` are those of each training image, by its id, as word ids with `begin` and `end`.
        """
        self.max_length = max_length

    @property
    def rates(self) -> Mapping[str, float]:
        """Factors of the learning rate for submodules of the decoder, by name; none by default."""
        return {}

    def begin_step(self, step: int, epoch: int) -> None:
        """Set what depends on the step or the epoch, counted from 0, and needs no saved state; nothing by default."""

    def steps(self, batch: Batch, features: Features, decoder: Decoder) -> Steps[Terms]:
        """The terms of one batch; an objective may ask for what is computed on the processor (`cuda_graphs.py`)."""
        yield from ()
        return self(batch, features, decoder)

    if TYPE_CHECKING:

        def __call__(self, batch: Batch, features: Features, decoder: Decoder) -> Terms: ...  # noqa: D102

    @abc.abstractmethod
    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of one batch, divided by `counts_of(batch)`, so that those of all batches of a step add up."""


def counts_of(*batches: Batch) -> Counts:
    """Numbers of words, captions and images in batches; for a batch of a larger step, those of the step."""
    if len(batches) == 1 and batches[0].counts is not None:
        return batches[0].counts
    batches = tuple(batch for batch in batches if not batch.is_dummy)
    zero = batches[0].words.new_zeros(()) if batches else torch.zeros((), dtype=torch.long)
    return Counts(
        words=sum(((batch.targets != Vocabulary.pad).sum() for batch in batches), zero),
        captions=sum((batch.is_caption.sum() for batch in batches), zero),
        images=zero + sum(len(batch.image_ids) for batch in batches),
    )
