"""N-grams of a whole corpus at once, counted by sorting integers. BLEU and CIDEr stand on this.

Captions lie one after the other in one array of word numbers, image by image: the prediction, then its
references. An n-gram is named by where it starts in that array. Its number `gram` is the same wherever the
same words stand; sorting (image, gram, position) brings together what an image's captions share, so that
counting, clipping and matching are differences between neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from showtell.errors import DataError
from showtell.files import read_json

ORDERS = 4
FEW_IMAGES = 100  # below about this many, document frequencies say little about which words are common
Integers = npt.NDArray[np.int64]
Words = Sequence[Hashable]  # of a caption; in self-critical training a word is its id


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of each caption, for one n: an entry is one n-gram of one caption.

    Sorted by (image, gram, caption): captions of an image that share a gram are neighbours, the prediction first."""

    caption: Integers  # (entries,) which caption
    gram: Integers  # (entries,) number of the n-gram, 0 to grams - 1
    count: Integers  # (entries,) how often the caption has it
    position: Integers  # (entries,) where in the corpus its first occurrence starts
    group: Integers  # (entries,) number of the (image, gram) pair that the entry belongs to
    grams: int  # how many different n-grams the corpus has


@dataclass(frozen=True)
class NgramIndex:
    """All captions of a corpus as one array of word numbers."""

    vocabulary: Sequence[Hashable]  # word number to word
    words: Integers  # (words,) all captions, one after the other
    lengths: Integers  # (captions,) words in each
    image: Integers  # (captions,) which image it belongs to
    is_prediction: npt.NDArray[np.bool_]  # (captions,) the first caption of its image

    @classmethod
    def of(
        cls,
        predictions: Iterable[Words],
        references: Iterable[Sequence[Words]],
        vocabulary: Sequence[Hashable] | None = None,
    ) -> NgramIndex:
        """Number the words of each image's prediction and references; with a vocabulary they are numbers already."""
        captions: list[Any] = []
        sizes = []
        for prediction, texts in zip(predictions, references, strict=True):
            captions.append(prediction)
            captions.extend(texts)
            sizes.append(1 + len(texts))
        words: Iterable[Any] = list(chain.from_iterable(captions))
        if vocabulary is None:
            vocabulary = list(dict.fromkeys(words))
            if any("\xa0" in str(word) for word in vocabulary):  # "2\xa01/2" is one token, but two words here
                captions = [" ".join(caption).split() for caption in captions]
                words = list(chain.from_iterable(captions))
                vocabulary = list(dict.fromkeys(words))
            number = {word: index for index, word in enumerate(vocabulary)}
            words = map(number.__getitem__, words)
        is_prediction = np.zeros(len(captions), dtype=bool)
        is_prediction[np.cumsum([0, *sizes])[:-1]] = True
        return cls(
            vocabulary=vocabulary,
            words=np.fromiter(words, dtype=np.int64),
            lengths=np.fromiter(map(len, captions), dtype=np.int64, count=len(captions)),
            image=np.repeat(np.arange(len(sizes)), sizes),
            is_prediction=is_prediction,
        )

    @property
    def images(self) -> int:
        """The number of images of the corpus."""
        return int(self.is_prediction.sum())

    @cached_property
    def starts(self) -> Integers:
        """Where each caption starts: (captions,)."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def counts(self) -> tuple[NgramCounts, ...]:
        """The n-grams of each caption for n = 1 to 4, counted once for BLEU and CIDEr."""
        caption = np.repeat(np.arange(len(self.lengths)), self.lengths)
        numbered = numbered_ngrams(self.words, self.lengths, len(self.vocabulary))
        return tuple(self._entries(at, gram, len(keys), caption) for at, gram, keys in numbered)

    def _entries(self, at: Integers, gram: Integers, grams: int, caption: Integers) -> NgramCounts:
        """Occurrences, ascending, to the distinct n-grams of each caption."""
        pair = self.image[caption[at]] * max(grams, 1) + gram  # (image, gram) of each occurrence
        order = np.argsort(pair, kind="stable")
        pair, at = pair[order], at[order]
        is_new_pair = np.diff(pair, prepend=-1) != 0
        entry = np.flatnonzero(is_new_pair | (np.diff(caption[at], prepend=-1) != 0))
        return NgramCounts(
            caption=caption[at[entry]],
            gram=pair[entry] % max(grams, 1),
            count=np.diff(entry, append=len(pair)),
            position=at[entry],
            group=np.cumsum(is_new_pair[entry]) - 1,
            grams=grams,
        )


def numbered_ngrams(
    words: Integers, lengths: Integers, vocabulary_size: int
) -> Iterator[tuple[Integers, Integers, Integers]]:
    """For n = 1 to 4 where n-grams start, ascending, the number of each, and the keys that are numbered, ascending.

    The key of a single word is the word; that of a longer n-gram is (number of the n-gram without its last word) x
    vocabulary size + last word. Captions lie one after the other: words (words,), lengths (captions,)."""
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))  # words to the caption's end
    number, keys = words, np.arange(vocabulary_size)
    for n in range(1, ORDERS + 1):
        at = np.flatnonzero(left >= n)
        if n > 1:
            longer = np.full_like(words, -1)
            keys, longer[at] = np.unique(number[at] * vocabulary_size + words[at + n - 1], return_inverse=True)
            number = longer
        yield at, number[at], keys


@dataclass(frozen=True)
class DocumentFrequency:
    """In the references of how many images each n-gram occurs: CIDEr's weights, from other captions."""

    counts: Mapping[tuple[Hashable, ...], float]  # an n-gram as words: number of images
    images: int
    source: str  # which captions these are, for the signature

    @classmethod
    def of(cls, references: Iterable[Iterable[Sequence[str]]], source: str) -> DocumentFrequency:
        """From the words of the references of each image; "2\\xa01/2" is two, as in `NgramIndex.of`."""
        counts: Counter[tuple[Hashable, ...]] = Counter()
        images = 0
        for texts in references:
            counts.update({gram for words in texts for gram in ngrams(" ".join(words).split())})
            images += 1
        return cls(counts, images, source)

    @classmethod
    def load(cls, path: Path) -> DocumentFrequency:
        """From a JSON file: `{"ref_len": images, "document_frequency": {"a man": 3}}`.

        Raises:
            DataError: the file cannot be read, or does not have this form.
        """
        content = read_json(path)
        try:
            images = int(content["ref_len"])
            counts = {tuple(gram.split(" ")): float(count) for gram, count in content["document_frequency"].items()}
            if images < 1 or not all(0 <= count <= images for count in counts.values()):
                raise ValueError("counts are between 0 and ref_len, which is at least 1")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise DataError(
                f'{path} holds no document frequencies: it should be {{"ref_len": images, "document_frequency": '
                f'{{"a man": 3}}}} ({type(error).__name__}: {error!s:.100}).'
            ) from error
        return cls(counts, images, path.name)

    def of_grams(self, index: NgramIndex, entries: NgramCounts, n: int) -> npt.NDArray[np.float64]:
        """The document frequency of each n-gram of a corpus: (grams,)."""
        frequencies = np.zeros(entries.grams)
        grams, where = np.unique(entries.gram, return_index=True)
        for gram, position in zip(grams.tolist(), entries.position[where].tolist(), strict=True):
            words = tuple(index.vocabulary[word] for word in index.words[position : position + n].tolist())
            frequencies[gram] = self.counts.get(words, 0.0)
        return frequencies


def ngrams(words: Words, orders: Iterable[int] = range(1, ORDERS + 1)) -> Iterator[tuple[Hashable, ...]]:
    """The n-grams of a caption, shorter ones first: the plain form."""
    for n in orders:
        for start in range(len(words) - n + 1):
            yield tuple(words[start : start + n])
