"""N-grams of a whole corpus at once, counted by sorting integers. BLEU and CIDEr stand on this.

Captions lie one after the other in one array of word numbers, image by image: the prediction, then its
references. An n-gram is named by where it starts in that array. Its number `gram` is the same wherever the
same words stand; sorting (image, gram, position) brings together what an image's captions share, so that
counting, clipping and matching are differences between neighbours.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from showtell.errors import DataError
from showtell.files import parse_json, read_json, write_json

ORDERS = 4
FEW_IMAGES = 100  # below about this many, document frequencies say little about which words are common
Integers = npt.NDArray[np.int64]

_WORDS_PER_SORT = 1 << 18  # images are sorted in groups of about this many words: memory and keys stay small


@dataclass(frozen=True)
class NgramCounts:
    """The distinct n-grams of each caption, for one n.

    An entry is one n-gram of one caption. Entries are in the order (image, gram, caption), so that the
    captions of an image that share a gram are neighbours, the prediction first.
    """

    caption: Integers  # (entries,) which caption
    gram: Integers  # (entries,) number of the n-gram, 0 to grams - 1
    count: Integers  # (entries,) how often the caption has it
    position: Integers  # (entries,) where in the corpus its first occurrence starts
    group: Integers  # (entries,) number of the (image, gram) pair that the entry belongs to
    grams: int  # how many different n-grams the corpus has


@dataclass(frozen=True)
class NgramIndex:
    """All captions of a corpus as one array of word numbers."""

    vocabulary: list[str]  # word number to word
    words: Integers  # (words,) all captions, one after the other
    starts: Integers  # (captions,) where each caption starts
    lengths: Integers  # (captions,) words in each
    image: Integers  # (captions,) which image it belongs to
    is_prediction: npt.NDArray[np.bool_]  # (captions,) the first caption of its image

    @classmethod
    def of(cls, predictions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> NgramIndex:
        """Number the words of predictions (one per image) and references (one or more per image)."""
        captions: list[Sequence[str]] = []
        sizes = []
        for prediction, texts in zip(predictions, references, strict=True):
            captions.append(prediction)
            captions.extend(texts)
            sizes.append(1 + len(texts))
        words = list(chain.from_iterable(captions))
        if any("\xa0" in word for word in set(words)):  # "2\xa01/2" is one token, but two words to BLEU and CIDEr
            captions = [" ".join(caption).split() for caption in captions]
            words = list(chain.from_iterable(captions))
        vocabulary = list(dict.fromkeys(words))
        number = {word: index for index, word in enumerate(vocabulary)}
        lengths = np.fromiter(map(len, captions), dtype=np.int64, count=len(captions))
        first = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, dtype=np.int64)
        is_prediction = np.zeros(len(captions), dtype=bool)
        is_prediction[first] = True
        return cls(
            vocabulary=vocabulary,
            words=np.fromiter(map(number.__getitem__, words), dtype=np.int64, count=len(words)),
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            image=np.repeat(np.arange(len(sizes)), sizes),
            is_prediction=is_prediction,
        )

    @property
    def images(self) -> int:
        """How many images the corpus has."""
        return int(self.is_prediction.sum())

    def counts(self) -> Iterator[NgramCounts]:
        """The n-grams of each caption for n = 1 to 4."""
        for at, gram, grams in self.numbered():
            yield self.entries(at, gram, grams)

    def numbered(self) -> Iterator[tuple[Integers, Integers, int]]:
        """For n = 1 to 4 where n-grams start (ascending), the number of each, and how many different ones there are.

        A single word has its word number; the numbers of longer n-grams are in the order of (n-gram without its last
        word, last word).
        """
        left = np.repeat(self.starts + self.lengths, self.lengths) - np.arange(len(self.words))  # words to the end
        gram, grams = self.words, len(self.vocabulary)
        for n in range(1, ORDERS + 1):
            at = np.flatnonzero(left >= n)
            if n > 1:
                longer = np.full_like(self.words, -1)
                longer[at], grams = _dense(gram[at] * len(self.vocabulary) + self.words[at + n - 1])
                gram = longer
            yield at, gram[at], grams

    def entries(self, at: Integers, gram: Integers, grams: int) -> NgramCounts:
        """Occurrences, ascending, to the distinct n-grams of each caption.

        Args:
            at: (occurrences,) where they start.
            gram: (occurrences,) their numbers.
            grams: how many numbers there are.
        """
        caption = np.repeat(np.arange(len(self.lengths)), self.lengths)[at]
        image = self.image[caption]
        parts = []
        for begin, end in _image_groups(at, image):
            first_image, first_at = int(image[begin]), int(at[begin])
            gram_bits, at_bits = max(grams, 1).bit_length(), int(at[end - 1] - first_at).bit_length()
            key = (image[begin:end] - first_image) << (gram_bits + at_bits)
            key |= gram[begin:end] << at_bits
            key |= at[begin:end] - first_at
            key.sort()
            position = (key & ((1 << at_bits) - 1)) + first_at
            parts.append((key >> at_bits, position, first_image << gram_bits))
        if not parts:
            empty = np.zeros(0, dtype=np.int64)
            return NgramCounts(empty, empty, empty, empty, empty, grams)
        pair = np.concatenate([pairs + offset for pairs, _, offset in parts])  # (image, gram) of each occurrence
        position = np.concatenate([positions for _, positions, _ in parts])
        owner = np.repeat(np.arange(len(self.lengths)), self.lengths)[position]
        new_pair = np.diff(pair, prepend=-1) != 0
        is_first = new_pair | (np.diff(owner, prepend=-1) != 0)
        entry = np.flatnonzero(is_first)
        return NgramCounts(
            caption=owner[entry],
            gram=pair[entry] & ((1 << max(grams, 1).bit_length()) - 1),
            count=np.diff(entry, append=len(pair)),
            position=position[entry],
            group=np.cumsum(new_pair[entry]) - 1,
            grams=grams,
        )


def _dense(keys: Integers) -> tuple[Integers, int]:
    """Number the different keys 0, 1, 2, ... in ascending order; the numbers and how many there are."""
    different, numbers = np.unique(keys, return_inverse=True)
    return numbers, len(different)


def _image_groups(at: Integers, image: Integers) -> Iterator[tuple[int, int]]:
    """Slices of the occurrences that hold whole images and about `_WORDS_PER_SORT` words each."""
    begin = 0
    while begin < len(at):
        last = image[min(begin + _WORDS_PER_SORT, len(at)) - 1]
        end = int(np.searchsorted(image, last, side="right"))
        yield begin, end
        begin = end


@dataclass(frozen=True)
class DocumentFrequency:
    """In the references of how many images each n-gram occurs: CIDEr's weights, from other captions."""

    counts: Mapping[tuple[str, ...], float]  # an n-gram as words: number of images
    images: int
    source: str  # which captions these are, for the signature

    @property
    def is_reliable(self) -> bool:
        """Whether it comes from enough images to tell common words from rare ones."""
        return self.images >= FEW_IMAGES

    @classmethod
    def of(cls, references: Iterable[Iterable[Sequence[str]]], source: str) -> DocumentFrequency:
        """From the words of the references of each image."""
        counts: Counter[tuple[str, ...]] = Counter()
        images = 0
        for texts in references:
            counts.update({gram for words in texts for gram in ngrams(words)})
            images += 1
        return cls(counts, images, source)

    @classmethod
    def load(cls, path: Path) -> DocumentFrequency:
        """From a JSON file, gzipped if its name ends in .gz: `{"ref_len": images, "document_frequency": {"a man": 3}}`.

        Raises:
            DataError: the file cannot be read, or does not have this form.
        """
        try:
            text = gzip.decompress(path.read_bytes()).decode("utf-8-sig") if path.suffix == ".gz" else None
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise DataError(f"{path} cannot be read as gzipped JSON: {error}.") from error
        content = read_json(path) if text is None else parse_json(text, str(path))
        try:
            images = int(content["ref_len"])
            counts = {tuple(gram.split(" ")): float(count) for gram, count in content["document_frequency"].items()}
            wrong = next((gram for gram, count in counts.items() if not 0 <= count <= images), None)
            if images < 1 or wrong is not None:
                raise ValueError(f"{' '.join(wrong or ())!r:.60} in {counts.get(wrong or ())} of {images} images")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise DataError(
                f'{path} holds no document frequencies: it should be {{"ref_len": images, "document_frequency": '
                f'{{"a man": 3}}}} ({type(error).__name__}: {error!s:.100}).'
            ) from error
        return cls(counts, images, path.name)

    def save(self, path: Path) -> None:
        """Write what `load` reads."""
        counts = {" ".join(gram): count for gram, count in self.counts.items()}
        write_json(path, {"ref_len": self.images, "document_frequency": counts})

    def of_grams(self, index: NgramIndex, matches: NgramCounts, n: int) -> npt.NDArray[np.float64]:
        """The document frequency of each n-gram of a corpus: (grams,)."""
        frequencies = np.zeros(matches.grams)
        grams, where = np.unique(matches.gram, return_index=True)
        for gram, position in zip(grams.tolist(), matches.position[where].tolist(), strict=True):
            words = tuple(index.vocabulary[word] for word in index.words[position : position + n].tolist())
            frequencies[gram] = self.counts.get(words, 0.0)
        return frequencies


def ngrams(words: Sequence[str], orders: Iterable[int] = range(1, ORDERS + 1)) -> Iterator[tuple[str, ...]]:
    """The n-grams of a caption, shorter ones first: the plain form."""
    for n in orders:
        for start in range(len(words) - n + 1):
            yield tuple(words[start : start + n])
