"""What a score is: sufficient statistics per image, then a sum. And its input: a tokenized corpus.

The same statistics give the corpus number (all images summed), the per-image list (each image alone), the
bootstrap interval (sums over resampled images) and the training reward (a batch in place of a corpus).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from showtell.scores.facts import ImageFacts, Need
from showtell.scores.ngrams import DocumentFrequency, NgramIndex
from showtell.text import tokenizer

if TYPE_CHECKING:
    from showtell.scores.encoders import ClipEncoder

Floats = npt.NDArray[np.float64]

# coco-caption hands all captions to its tokenizer in one file, and the words of one that ends in "plan B." depend on
# the next one. Here a caption counts alike whatever follows: as if that began as most captions do.
NEXT_CAPTION = "A "


def tokenize(caption: str) -> list[str]:
    """The words of a caption as scores count them."""
    return tokenizer.tokenize(caption, NEXT_CAPTION)


@dataclass(frozen=True)
class Corpus:
    """Images with one prediction each and what is known of them, as text and as words."""

    ids: tuple[str, ...]  # of the images
    predictions: tuple[str, ...]  # as written, one per image
    facts: tuple[ImageFacts, ...]  # of each image, with at least one reference
    document_frequency: DocumentFrequency | None = None  # None: counted in the references
    clip: ClipEncoder | None = None  # of CLIPScore

    @property
    def references(self) -> tuple[tuple[str, ...], ...]:
        """The references of each image, as written."""
        return tuple(facts.references for facts in self.facts)

    @cached_property
    def predicted_words(self) -> list[list[str]]:
        """The words of each prediction."""
        return list(map(tokenize, self.predictions))

    @cached_property
    def reference_words(self) -> list[list[list[str]]]:
        """The words of each reference of each image."""
        return [list(map(tokenize, texts)) for texts in self.references]

    @cached_property
    def ngrams(self) -> NgramIndex:
        """The n-grams of all captions, counted once for BLEU and CIDEr."""
        return NgramIndex.of(self.predicted_words, self.reference_words)

    @property
    def signature(self) -> str:
        """What the signatures of scores of words share: references per image, tokenizer, what follows a caption."""
        return f"{self.reference_counts}|case:lower|tok:{tokenizer.TOKENIZER_VERSION}|next:a"

    @property
    def reference_counts(self) -> str:
        """The part of a signature that says how many references the images have."""
        counts = [len(texts) for texts in self.references]
        fewest, most = min(counts), max(counts)
        return f"nrefs:{most}" if fewest == most else f"nrefs:{fewest}-{most}"


@dataclass(frozen=True)
class ScoreNumber:
    """One number of a score: what it is called, and where it is used."""

    name: str  # in reports and files: "bleu_4"
    title: str  # for people: "BLEU-4"
    maximum: float = 1.0
    lower_is_better: bool = False
    can_select: bool = False  # `training.selection_metric` may name it
    in_validation: bool = False  # counted in every validation of a training run
    explanation_rank: float | None = None  # its position among the numbers of an explanation; None: not shown
    in_table: bool = True  # where no metrics are named
    can_reward: bool = False  # `objective.reward` may name it: its score reads words alone, which may be ids

    def __post_init__(self) -> None:
        if self.can_select and self.lower_is_better:
            raise ValueError(f"{self.name} cannot select weights, of which the highest score wins; negate it")


class Score(ABC):
    """One metric of captions, which may have several numbers (BLEU-1 to 4)."""

    numbers: ClassVar[tuple[ScoreNumber, ...]]
    summary: ClassVar[str]  # what it is, in a clause, for the table of the documentation
    needs: ClassVar[tuple[Need, ...]] = ("references",)
    by_default: ClassVar[bool] = True  # whether it runs where no metrics are named

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(number.name for number in self.numbers)

    @abstractmethod
    def statistics(self, corpus: Corpus) -> Floats:
        """Sufficient statistics: (images, statistics).

        Raises:
            ShowtellError: this metric cannot run here; the message says what is missing and how to get it.
        """

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """(..., statistics) to (..., names): means, where the statistics are the numbers of each image."""
        return sums / images

    @abstractmethod
    def signature(self, corpus: Corpus) -> str:
        """How the numbers were made: everything two numbers must share to be compared."""

    def warning(self, corpus: Corpus) -> str | None:
        """A sentence where the numbers say less than they seem to."""
        return None


def ratio(part: Floats, whole: Floats) -> Floats:
    """Part over whole, 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole != 0)


def corpus_numbers(score: Score, statistics: Floats) -> Floats:
    """The numbers of a whole corpus: (names,)."""
    # each column in one piece: numpy then sums it pairwise, as the reference's mean does
    return score.from_sums(np.ascontiguousarray(statistics.T).sum(axis=1), len(statistics))


def image_numbers(score: Score, statistics: Floats) -> Floats:
    """The numbers of each image alone: (images, names)."""
    return score.from_sums(statistics, 1)


@dataclass(frozen=True)
class ScoreStatistics:
    """One score on one corpus: its sufficient statistics, from which every number comes."""

    score: Score
    rows: Floats  # (images, statistics)
    signature: str

    def from_sums(self, sums: Floats) -> Floats:
        """Sums over as many images, (..., statistics), to the numbers of the score."""
        return self.score.from_sums(sums, len(self.rows))
