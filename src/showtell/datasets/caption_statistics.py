"""The words of a dataset: how long its captions are, how many words they have, and how they suit a checkpoint.

Words are those of the tokenizer that training and scoring use, punctuation left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from showtell.datasets.records import CaptionRecord
from showtell.datasets.splits import split_rank
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL, Vocabulary

USUAL_COUNT = 5  # papers and recipes keep the words that train has at least this often
# Of 1,000 images of Flickr8k 3.2% of the words are unknown to who keeps those that 6,000 others have five times, and
# 1.8% of the captions have more than 20 words: what is usual is below these.
MOST_UNKNOWN = 0.05  # share of a split's words
MOST_LONGER = 0.05  # share of a split's captions


@dataclass(frozen=True)
class Spread:
    """How some whole numbers lie."""

    least: int
    mean: float
    median: float
    p95: int  # the least that 95% of them do not exceed
    most: int

    @staticmethod
    def of(counts: Mapping[int, int]) -> Spread | None:
        """The spread of numbers, given how often each occurs; None of none."""
        total = sum(counts.values())
        if not total:
            return None
        ordered = sorted(counts)
        middle = (_at(counts, ordered, (total - 1) // 2) + _at(counts, ordered, total // 2)) / 2
        mean = sum(number * count for number, count in counts.items()) / total
        return Spread(ordered[0], mean, middle, _at(counts, ordered, math.ceil(0.95 * total) - 1), ordered[-1])

    def as_json(self) -> dict[str, float]:
        """As `data check --json` has it."""
        return {"min": self.least, "mean": self.mean, "median": self.median, "p95": self.p95, "max": self.most}


def _at(counts: Mapping[int, int], ordered: list[int], place: int) -> int:
    """The number at a place of all numbers in order."""
    for number in ordered:
        place -= counts[number]
        if place < 0:
            return number
    raise IndexError(place)


@dataclass(frozen=True)
class Fit:
    """How the captions of a dataset suit a checkpoint."""

    words: int  # that the checkpoint knows
    unused: float  # share of them that no caption has
    unknown: dict[str, float]  # of each split, the share of its words that the checkpoint does not know
    max_length: int  # words that the checkpoint says at most
    longer: dict[str, float]  # of each split, the share of captions with more words than that

    def warnings(self) -> list[str]:
        """What may keep scores low, a sentence each."""
        found = []
        unknown = {split: share for split, share in self.unknown.items() if share > MOST_UNKNOWN}
        if unknown:
            found.append(
                f"The checkpoint does not know {_shares(unknown)} of the words, so it can never say them; train on "
                "captions like these, or use the dataset it was made for."
            )
        longer = {split: share for split, share in self.longer.items() if share > MOST_LONGER}
        if longer:
            found.append(
                f"The checkpoint says at most {self.max_length} words, and {_shares(longer)} of the captions are "
                "longer: raise decoding.max_length."
            )
        return found


def _shares(shares: Mapping[str, float]) -> str:
    """
    >>> _shares({"train": 0.1, "val": 0.07, "test": 0.125})
    '10.0% (train), 7.0% (val) and 12.5% (test)'
    """
    *first, last = [f"{share:.1%} ({split})" for split, share in shares.items()]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True)
class Wording:
    """What the captions of a dataset consist of, split by split."""

    words: dict[str, Counter[str]]  # how often each split has each word
    lengths: dict[str, Counter[int]]  # how many of a split's captions have so many words

    @staticmethod
    def of(records: Iterable[CaptionRecord]) -> Wording:
        """Count the words of all captions."""
        words: dict[str, Counter[str]] = {}
        lengths: dict[str, Counter[int]] = {}
        for record in records:
            if record.split not in words:
                words[record.split], lengths[record.split] = Counter(), Counter()
            for caption in record.captions:
                said = tokenize(caption)
                words[record.split].update(said)
                lengths[record.split][len(said)] += 1
        ordered = sorted(words, key=split_rank)
        return Wording({split: words[split] for split in ordered}, {split: lengths[split] for split in ordered})

    @property
    def words_per_caption(self) -> Spread | None:
        """Over all splits; None without captions."""
        return Spread.of(sum(self.lengths.values(), Counter()))

    @property
    def known(self) -> Counter[str]:
        """What there is to learn from: the words of train, of all splits where there is no train."""
        return self.words["train"] if "train" in self.words else sum(self.words.values(), Counter())

    def unseen(self) -> dict[str, float]:
        """Of each split but train, the share of its words that train never has; empty without train."""
        if "train" not in self.words:
            return {}
        return {split: _unknown(words, self.words["train"]) for split, words in self.words.items() if split != "train"}

    def fit(self, vocabulary: Vocabulary, max_length: int) -> Fit:
        """How these captions suit a checkpoint with a vocabulary that says at most so many words."""
        own = vocabulary.words[len(SPECIAL) :]
        said = set().union(*self.words.values())
        return Fit(
            len(own),
            sum(word not in said for word in own) / max(len(own), 1),
            {split: _unknown(words, vocabulary) for split, words in self.words.items()},
            max_length,
            {
                split: sum(count for length, count in lengths.items() if length > max_length) / max(lengths.total(), 1)
                for split, lengths in self.lengths.items()
            },
        )


def _unknown(words: Counter[str], known: Container[str]) -> float:
    """The share of words that are not known."""
    return sum(count for word, count in words.items() if word not in known) / max(words.total(), 1)
