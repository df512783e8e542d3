"""What a decoder is: one step at a time; nobody but `decoding/` loops over time.

    state = decoder.start(features)              # everything that does not depend on the last word, once
    output, state = decoder.step(words, state)   # words (B, N): one step for all rows of all images
    logits = decoder.readout(output)             # (..., V); over stacked outputs it is one matrix product
    logits = decoder.readout(output, stage)      # of an earlier stage, where a model has several
    read = decoder.embed(words)                   # words known in advance: their part of all steps at once

State has two halves: what belongs to an image, (B, ...), which is never copied, and what belongs to a row (a caption,
sample or beam of it), (B, N, ...). A search that reorders beams touches the rows alone.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from showtell.config import Config
from showtell.types import Features, map_tensors


@dataclass(frozen=True)
class State:
    """Where a decoder stands. Both halves are frozen records of tensors that the model defines."""

    image: Any  # tensors (B, ...)
    rows: Any  # tensors (B, N, ...)


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a step says, (B, N, ...); `decoding` stacks it over time to (B, N, T, ...). Models add their own fields."""

    attention: Tensor | None = None  # (B, N, R) weights that sum to one; None for models without attention
    sampled_regions: Tensor | None = None  # (B, N) int64, the region that hard attention chose; -1: the expectation
    stages: tuple[Output, ...] = ()  # what each stage says and where it looks, the last one last; () for one stage

    def diagnostics(self) -> dict[str, Tensor]:
        """Further numbers of each step that explanations show, by name: (B, N, K) each."""
        return {}


class Decoder(nn.Module, abc.ABC):
    """A language model that looks at features."""

    config: Config  # kept in the checkpoint, enough to build it again

    @property
    def stages(self) -> int:
        """How many distributions of the next word a step has, from coarse to fine; the last one is the model's."""
        return 1

    @property
    def samples_attention(self) -> bool:
        """Whether `Output.sampled_regions` are drawn at random in the present mode, and so are part of the policy."""
        return False

    @abc.abstractmethod
    def start(self, features: Features) -> State:
        """The state before the first word, with one row per image, (B, 1, ...)."""

    def embed(self, words: Tensor) -> Any:
        """What words give to a step whatever the state, which `step` takes in their place.

        Where words are known in advance it is computed for all of them at once. By default the words themselves.

        Args:
            words: (...) int64.

        Returns:
            A record of tensors (..., ...).
        """
        return words

    @abc.abstractmethod
    def step(self, words: Any, state: State) -> tuple[Output, State]:
        """Read the last words, (B, N) int64 or what `read` made of them, and go one step on."""

    @abc.abstractmethod
    def readout(self, output: Output, stage: int = -1) -> Tensor:
        """The scores of the next word before the softmax, (..., V).

        Args:
            output: of a step, or of several stacked.
            stage: which of the `stages`; models with one look past it.
        """


@contextlib.contextmanager
def eval_mode(module: nn.Module) -> Iterator[None]:
    """Inside the block a module is in eval mode, as decoder and encoder are when photos are captioned."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)


def spread(state: State, rows: int) -> State:
    """The state with its single row repeated: (B, 1, ...) to (B, N, ...). The image half is shared."""
    return State(state.image, map_tensors(state.rows, lambda x: x.expand(-1, rows, *x.shape[2:]).contiguous()))


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Some rows of each image: x (B, N, ...) and rows (B, K) int64 to (B, K, ...)."""
    index = rows.reshape(*rows.shape, *[1] * (x.dim() - 2)).expand(*rows.shape, *x.shape[2:])
    return torch.gather(x, 1, index)


def take_rows(state: State, parents: Tensor) -> State:
    """The state whose row n of image b is the old row parents[b, n]. parents (B, N) int64."""
    return State(state.image, map_tensors(state.rows, lambda x: gather_rows(x, parents)))
