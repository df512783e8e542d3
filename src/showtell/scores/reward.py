"""Scores as a reward: those of sampled captions, given as tensors of word ids, against the training captions.

A reward is what `score` gives for the same captions, with ids in place of words. Whether the end of a caption counts
as a word is up to who prepares and masks; in self-critical training it does, in samples, references and document
frequencies alike. Shapes: B images, N samples of each, T words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from showtell.errors import DataError, UsageError, nearest, summarise
from showtell.scores import SCORES, metric_of, reward_numbers
from showtell.scores.base import Floats, image_numbers
from showtell.scores.ngrams import Integers, NgramCounts, NgramIndex, numbered_ngrams


@dataclass(frozen=True)
class IdFrequency:
    """In the references of how many images each n-gram of word ids occurs."""

    keys: list[Integers]  # of n = 1 to 4: what `numbered_ngrams` numbers, and a last one that no n-gram has
    counts: list[Floats]  # of n = 1 to 4: (keys,)
    images: int

    @classmethod
    def of(cls, references: Sequence[Sequence[Sequence[int]]], vocabulary_size: int) -> IdFrequency:
        """Count the references of each image."""
        captions = list(chain.from_iterable(references))
        lengths = np.fromiter(map(len, captions), np.int64, len(captions))
        words = np.fromiter(chain.from_iterable(captions), np.int64, int(lengths.sum()))
        if len(words) and not 0 <= words.min() <= words.max() < vocabulary_size:
            raise DataError(
                f"Word ids are below {vocabulary_size}; the references have {words.min()} to {words.max()}."
            )
        image = np.repeat(np.repeat(np.arange(len(references)), list(map(len, references))), lengths)
        keys, counts = [], []
        for at, gram, known in numbered_ngrams(words, lengths, vocabulary_size):
            size = max(len(known), 1)
            in_image = np.unique(image[at] * size + gram)  # an n-gram once for each image
            keys.append(np.append(known, np.iinfo(np.int64).max))
            counts.append(np.bincount(in_image % size, minlength=len(known) + 1).astype(np.float64))
        return cls(keys, counts, len(references))

    def of_grams(self, index: NgramIndex, entries: NgramCounts, n: int) -> Floats:
        """The document frequency of each n-gram of other captions: (grams,); 0 of unknown ones."""
        frequency = np.zeros(entries.grams)
        if not len(entries.gram):
            return frequency
        position = np.zeros(entries.grams, dtype=np.int64)
        position[entries.gram] = entries.position
        number, is_known = index.words[position], np.ones(entries.grams, dtype=bool)
        for longer in range(1, n):
            key = number * len(index.vocabulary) + index.words[position + longer]
            number = np.searchsorted(self.keys[longer], key)
            is_known &= self.keys[longer][number] == key
        return np.where(is_known, self.counts[n - 1][number], 0.0)


class Reward:
    """A weighted sum of scores for samples of the images it was prepared for."""

    def __init__(
        self,
        references: Mapping[str, Sequence[Sequence[int]]],
        *,
        vocabulary_size: int,
        weights: Mapping[str, float] | None = None,
        discriminability: float = 0.0,
    ) -> None:
        """Count the n-grams of each image's captions, given as word ids; without weights the reward is CIDEr-D alone.

        `discriminability` is the share taken away of the most that a sample earns for another image of the batch."""
        self.weights = dict(weights or {"cider": 1.0})
        for name in self.weights:
            if name not in reward_numbers():
                raise UsageError(f'There is no reward "{name}": {nearest(name, reward_numbers())}.')
        if (bare := [image for image, captions in references.items() if not captions]) or not references:
            raise DataError(f"A reward needs references; {len(bare)} image(s) have none: {summarise(bare)}.")
        self.references = {image: list(map(list, captions)) for image, captions in references.items()}
        self.vocabulary_size = vocabulary_size
        self.discriminability = discriminability
        self.document_frequency = IdFrequency.of(list(self.references.values()), vocabulary_size)

    def __call__(self, words: Tensor, is_word: Tensor, image_ids: Sequence[str]) -> Tensor:
        """Rewards (B, N) in fp64 of words (B, N, T); `is_word` marks those that count, from the first without a gap."""
        if unknown := [image for image in image_ids if image not in self.references]:
            raise DataError(f"The reward was not prepared for {len(unknown)} image(s): {summarise(unknown)}.")
        images, samples = words.shape[:2]
        lengths = is_word.sum(-1).flatten().tolist()
        captions = [ids[:length] for ids, length in zip(words.flatten(0, 1).tolist(), lengths, strict=True)]
        own = [self.references[image] for image in image_ids for _ in range(samples)]
        total = self._sum(captions, own)
        if self.discriminability and images > 1:
            turns = (samples * turn for turn in range(1, images))  # each time the references of another image
            others = np.stack([self._sum(captions, own[turn:] + own[:turn]) for turn in turns])
            total = total - self.discriminability * others.max(0)
        return torch.from_numpy(total.reshape(images, samples)).to(words.device)

    def _sum(self, captions: Sequence[Sequence[int]], references: Sequence[Sequence[Sequence[int]]]) -> Floats:
        """The weighted sum for each caption against its references."""
        corpus: Any = SimpleNamespace(  # what a score that can be a reward reads of a `Corpus`; a word is its id
            predicted_words=captions,
            reference_words=references,
            ngrams=NgramIndex.of(captions, references, range(self.vocabulary_size)),
            document_frequency=self.document_frequency,
        )
        values: dict[str, Floats] = {}
        for metric in dict.fromkeys(map(metric_of, self.weights)):
            score = SCORES[metric]()
            values.update(zip(score.names, image_numbers(score, score.statistics(corpus)).T, strict=True))
        return sum((weight * values[name] for name, weight in self.weights.items()), np.zeros(len(captions)))
