"""Statistics of the captions of a dataset: lengths, vocabulary, and coverage by the vocabulary of a checkpoint.

Words are those of the tokenizer that training and scoring use, punctuation left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

from showtell.datasets.records import CaptionRecord
from showtell.datasets.splits import split_rank
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary

FREQUENT_COUNT = 5  # papers and recipes keep the words that train has at least this often
# In 1,000 images of Flickr8k 3.2% of the words are not among those that occur five times in 6,000 others, and 1.8% of
# the captions have more than 20 words; datasets that a checkpoint was trained for stay below these limits.
MAX_UNKNOWN = 0.05  # share of a split's words
MAX_LONGER = 0.05  # share of a split's captions


@dataclass(frozen=True)
class Distribution:
    """Minimum, mean, median, 95th percentile and maximum of whole numbers."""

    min: int
    mean: float
    median: float
    p95: int  # the least number that 95% of them do not exceed
    max: int

    @staticmethod
    def of(counts: Mapping[int, int]) -> Distribution | None:
        """The distribution of numbers, given how often each occurs; None without numbers."""
        numbers = sorted(Counter(counts).elements())
        if not numbers:
            return None
        p95 = numbers[math.ceil(0.95 * len(numbers)) - 1]
        return Distribution(numbers[0], fmean(numbers), median(numbers), p95, numbers[-1])


@dataclass(frozen=True)
class CheckpointCoverage:
    """How far the vocabulary and the maximum length of a checkpoint cover the captions of a dataset."""

    unknown: dict[str, float]  # of each split, the share of its words that are not in the vocabulary
    max_length: int  # words of a caption of the checkpoint at most
    longer: dict[str, float]  # of each split, the share of captions with more words than that

    def warnings(self) -> list[str]:
        """What may keep scores low, a sentence each."""
        warnings = []
        unknown = {split: share for split, share in self.unknown.items() if share > MAX_UNKNOWN}
        if unknown:
            warnings.append(
                f"The checkpoint does not know {_shares(unknown)} of the words, so it can never write them; train on "
                "captions like these, or use the dataset it was made for."
            )
        longer = {split: share for split, share in self.longer.items() if share > MAX_LONGER}
        if longer:
            warnings.append(
                f"The checkpoint writes at most {self.max_length} words, and {_shares(longer)} of the captions are "
                "longer: raise decoding.max_length."
            )
        return warnings


def _shares(shares: Mapping[str, float]) -> str:
    """
    >>> _shares({"train": 0.1, "val": 0.07, "test": 0.125})
    '10.0% (train), 7.0% (val) and 12.5% (test)'
    """
    *first, last = [f"{share:.1%} ({split})" for split, share in shares.items()]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class CaptionStatistics:
    """Words and lengths of the captions of a dataset, by split."""

    words: dict[str, Counter[str]]  # how often each split has each word
    lengths: dict[str, Counter[int]]  # how many of a split's captions have this number of words

    @staticmethod
    def of(records: Iterable[CaptionRecord]) -> CaptionStatistics:
        """Count the words of all captions."""
        words: dict[str, Counter[str]] = {}
        lengths: dict[str, Counter[int]] = {}
        for record in records:
            if record.split not in words:
                words[record.split], lengths[record.split] = Counter(), Counter()
            for caption in record.captions:
                tokens = tokenize(caption)
                words[record.split].update(tokens)
                lengths[record.split][len(tokens)] += 1
        ordered = sorted(words, key=split_rank)
        return CaptionStatistics(
            {split: words[split] for split in ordered}, {split: lengths[split] for split in ordered}
        )

    @property
    def words_per_caption(self) -> Distribution | None:
        """Over all splits; None without captions."""
        return Distribution.of(sum(self.lengths.values(), Counter()))

    @property
    def training_words(self) -> Counter[str]:
        """The words to train on, with their counts: those of train, or of all splits if there is no train."""
        return self.words["train"] if "train" in self.words else sum(self.words.values(), Counter())

    def unseen(self) -> dict[str, float]:
        """Of each split but train, the share of its words that do not occur in train; empty without train."""
        if "train" not in self.words:
            return {}
        return {split: _unknown(words, self.words["train"]) for split, words in self.words.items() if split != "train"}

    def coverage(self, vocabulary: Vocabulary, max_length: int) -> CheckpointCoverage:
        """How far a checkpoint with this vocabulary and maximum length covers these captions."""
        longer = {
            split: sum(count for length, count in lengths.items() if length > max_length) / max(lengths.total(), 1)
            for split, lengths in self.lengths.items()
        }
        unknown = {split: _unknown(words, vocabulary) for split, words in self.words.items()}
        return CheckpointCoverage(unknown, max_length, longer)


def _unknown(words: Counter[str], known: Container[str]) -> float:
    """The share of words that are not known."""
    return sum(count for word, count in words.items() if word not in known) / max(words.total(), 1)
