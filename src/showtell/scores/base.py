"""What a score is: sufficient statistics per image, then a sum. And what it is given: a tokenized corpus.

The same statistics give the corpus number (all images summed), the per-image list (each image alone), the
bootstrap interval (sums over resampled images) and the training reward (a batch in place of a corpus).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from showtell.scores.ngrams import Matches, NgramIndex
from showtell.text.tokenizer import TOKENIZER_VERSION, tokenize

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Corpus:
    """Images with one prediction and one or more references each, as text and as words."""

    ids: tuple[str, ...]  # of the images
    predictions: tuple[str, ...]  # as written, one per image
    references: tuple[tuple[str, ...], ...]  # as written, at least one per image
    scenes: Mapping[str, Any] | None = None  # image id: showtell.scenes.Scene, where the images were drawn
    objects: Mapping[str, Collection[str]] | None = None  # image id: categories of what it shows, where known

    @cached_property
    def predicted_words(self) -> list[list[str]]:
        """The words of each prediction."""
        return [tokenize(text) for text in self.predictions]

    @cached_property
    def reference_words(self) -> list[list[list[str]]]:
        """The words of each reference of each image."""
        return [[tokenize(text) for text in texts] for texts in self.references]

    @cached_property
    def ngrams(self) -> NgramIndex:
        """The n-grams of all captions, counted once for BLEU and CIDEr."""
        return NgramIndex.of(self.predicted_words, self.reference_words)

    @cached_property
    def matches(self) -> tuple[Matches, ...]:
        """For n = 1 to 4, which n-grams the captions hold and which of them an image's captions share."""
        return tuple(self.ngrams.matches())

    @property
    def signature(self) -> str:
        """The part of a signature that all scores share: references per image and tokenizer."""
        counts = [len(texts) for texts in self.references]
        fewest, most = min(counts), max(counts)
        span = str(most) if fewest == most else f"{fewest}-{most}"
        return f"nrefs:{span}|case:lower|tok:{TOKENIZER_VERSION}"


class Numbers(Protocol):
    """Numbers that come from sums of statistics: all that is needed for a corpus, an image or a bootstrap."""

    names: ClassVar[tuple[str, ...]]

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Statistics summed over images, (..., statistics), to the numbers in `names`: (..., names)."""


class Score(Numbers, Protocol):
    """One metric of captions, which may have several numbers (BLEU-1 to 4)."""

    def statistics(self, corpus: Corpus) -> Floats:
        """Sufficient statistics: (images, statistics).

        Raises:
            ShowtellError: this metric cannot run here; the message says what is missing and how to get it.
        """

    def signature(self, corpus: Corpus) -> str:
        """How the numbers were made: everything two numbers must share to be compared."""


def corpus_numbers(score: Numbers, statistics: Floats) -> Floats:
    """The numbers of a whole corpus: (names,)."""
    # each column in one piece: numpy then sums it pairwise, as the reference's mean does
    return score.from_sums(np.ascontiguousarray(statistics.T).sum(axis=1), len(statistics))


def image_numbers(score: Numbers, statistics: Floats) -> Floats:
    """The numbers of each image alone: (images, names)."""
    return score.from_sums(statistics, 1)
