"""Scores as a reward: CIDEr-D and BLEU of sampled captions, given as tensors of word ids, where the tensors are.

References and document frequencies are prepared once; then a batch of samples is scored in some hundred tensor
operations on their device, with no loop over captions. The numbers are those of `score` on the same captions with
ids in place of words. Whether the end of a caption counts as a word is up to who prepares and masks; in
self-critical training it does, in samples, references and document frequencies alike.

Shapes: B images, N samples of each, T words, R references of an image (of the one that has most), G n-grams.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from showtell.errors import DataError, UsageError, nearest, summarise
from showtell.scores import numbers
from showtell.scores.cider import SIGMA
from showtell.scores.ngrams import ORDERS, DocumentFrequency, Integers, NgramCounts, NgramIndex

_TINY, _SMALL = 1e-15, 1e-9  # as in `bleu`
_PENALTIES = 256  # from this difference in length on, CIDEr-D's penalty is 0 in double precision


class _Tables(NamedTuple):
    """What is known of the training captions: arrays, or tensors on a device.

    A word is its own n-gram number; longer n-grams are numbered from there on. The number of an n-gram is looked up
    by the key (number of the n-gram without its last word) * vocabulary size + last word.
    """

    keys: Any  # (keys,) ascending, with a last one that no n-gram has
    numbers: Any  # (keys,) the n-gram of each key
    weight: Any  # (G + 1,) log(images / images whose references have it); the last is that of unknown n-grams
    starts: Any  # (images + 1,) where each image's n-grams start in the next two
    grams: Any  # the n-grams of each image's references, ascending
    counts: Any  # (len(grams), R) how often each reference has each; the last row is 0
    norms: Any  # (images, 4, R) lengths of each reference's vectors
    lengths: Any  # (images, R) words of each reference, -1 where the image has fewer
    penalty: Any  # (256,) CIDEr-D's, by difference in length


class Reward:
    """A weighted sum of CIDEr-D and BLEU for samples of the images it was prepared for.

    >>> reward = Reward.prepare({"7": [[4, 5, 6], [4, 5]], "8": [[7, 8]]}, vocabulary_size=10)
    >>> words = torch.tensor([[[4, 5, 6]], [[7, 9, 0]]])
    >>> reward(words, words > 0, ["7", "8"]).shape
    torch.Size([2, 1])
    """

    def __init__(
        self, tables: _Tables, images: Mapping[str, int], vocabulary_size: int, weights: Mapping[str, float]
    ) -> None:
        """Use `prepare`."""
        self._tables = tables
        self._images = dict(images)
        self._vocabulary_size = vocabulary_size
        self.weights = dict(weights)
        self._on: dict[torch.device, _Tables] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_on": {}}  # arrays travel to a worker process; it makes its own tensors

    @classmethod
    def prepare(
        cls,
        references: Mapping[str, Sequence[Sequence[int]]],
        *,
        vocabulary_size: int,
        weights: Mapping[str, float] | None = None,
        document_frequency: DocumentFrequency | None = None,
    ) -> Reward:
        """Count the n-grams of the training captions.

        Args:
            references: image id to the word ids of its captions, the end included if it shall count.
            vocabulary_size: ids are below this.
            weights: number of a score that declares a reward, to its weight; None is CIDEr-D alone.
            document_frequency: of n-grams of ids written as text; None counts them in the references.

        Raises:
            DataError: an image has no reference, or an id is not below `vocabulary_size`.
            UsageError: a part that does not exist.
        """
        weights = weights or {"cider": 1.0}
        rewards = reward_functions()
        for name in weights:
            if name not in rewards:
                raise UsageError(f'There is no reward "{name}": {nearest(name, rewards)}.')
        bare = [image for image, captions in references.items() if not captions]
        if bare or not references:
            raise DataError(f"A reward needs references; {len(bare)} image(s) have none: {summarise(bare)}.")
        tables = _prepare(list(references.values()), vocabulary_size, document_frequency)
        return cls(tables, {image: number for number, image in enumerate(references)}, vocabulary_size, weights)

    def __call__(self, words: Tensor, is_word: Tensor, image_ids: Sequence[str]) -> Tensor:
        """The reward of each sample: (B, N), in double precision, on the samples' device.

        Args:
            words: (B, N, T) word ids.
            is_word: (B, N, T) the words that count, from the first on without a gap.
            image_ids: (B,) which images the samples are of.

        Raises:
            DataError: an image was not prepared for.
        """
        unknown = [image for image in image_ids if image not in self._images]
        if unknown:
            raise DataError(f"The reward was not prepared for {len(unknown)} image(s): {summarise(unknown)}.")
        device = words.device
        if device not in self._on:
            self._on[device] = _Tables(*(torch.as_tensor(array).to(device) for array in self._tables))
        images = torch.tensor([self._images[image] for image in image_ids], device=device)
        samples = RewardSamples(self._on[device], self._vocabulary_size, images, words, is_word)
        rewards = reward_functions()
        total = torch.zeros(words.shape[:2], dtype=torch.float64, device=device)
        for name, weight in self.weights.items():
            total += weight * rewards[name](samples)
        return total


def reward_functions() -> dict[str, Callable[[RewardSamples], Tensor]]:
    """The numbers of scores that can be a reward, and what computes each of sampled captions: (B, N)."""
    return {name: number.reward for name, number in numbers().items() if number.reward is not None}


class RewardSamples:
    """A batch of samples: their n-grams, and how often the references have them."""

    def __init__(self, tables: _Tables, vocabulary_size: int, images: Tensor, words: Tensor, is_word: Tensor) -> None:
        self.tables = tables
        self.images = images
        self.words = words
        self.vocabulary_size = vocabulary_size
        self.unknown = len(tables.weight) - 1  # the number of all unknown n-grams
        self.length = is_word.sum(-1)  # (B, N)
        self.number, self.count = self._grams()
        self.matched, self.matched_number, self.matched_counts = self._matches()

    def _grams(self) -> tuple[Tensor, Tensor]:
        """For each n the n-gram at each word, and its count at its first position, 0 elsewhere: (B, 4, N, T) each."""
        steps = self.words.shape[-1]
        words = pad(self.words, (0, ORDERS - 1))
        position = torch.arange(words.shape[-1], device=words.device)
        is_word = position < self.length[..., None]
        same = (words[..., :, None] == words[..., None, :]) & is_word[..., :, None] & is_word[..., None, :]
        earlier = position[:steps, None] > position[:steps]
        numbers: list[Tensor] = []
        counts: list[Tensor] = []
        equal = same[..., :steps, :steps]  # (B, N, T, T) whether the n-grams at two words are the same
        for n in range(ORDERS):
            last = words[..., n : n + steps]
            equal = equal & same[..., n : n + steps, n : n + steps]
            number = self._look_up(numbers[-1], last) if n else last
            numbers.append(number.masked_fill(~is_word[..., n : n + steps], self.unknown))
            counts.append(equal.sum(-1).masked_fill_((equal & earlier).any(-1), 0))
        return torch.stack(numbers, 1), torch.stack(counts, 1)

    def _look_up(self, shorter: Tensor, word: Tensor) -> Tensor:
        """N-grams from those without their last word, and that word."""
        key = shorter * self.vocabulary_size + word
        at = torch.searchsorted(self.tables.keys, key)
        return _pick(self.tables.numbers, at).masked_fill_(_pick(self.tables.keys, at) != key, self.unknown)

    def _matches(self) -> tuple[Tensor, Tensor, Tensor]:
        """The n-grams that references have too: places in (B, 4, N, T), numbers, counts in each reference."""
        tables = self.tables
        start = tables.starts[self.images]
        size = tables.starts[self.images + 1] - start  # (B,)
        offset = torch.arange(max(1, int(size.max())), device=size.device)
        beyond = offset >= size[:, None]
        at = (start[:, None] + offset).masked_fill_(beyond, 0)  # (B, widest)
        listed = _pick(tables.grams, at).masked_fill_(beyond, self.unknown + 1)
        wanted = self.number.flatten(1)  # (B, 4 N T)
        index = torch.searchsorted(listed, wanted).clamp_(max=len(offset) - 1)
        is_match = (listed.gather(1, index) == wanted) & (self.count.flatten(1) > 0)
        matched = is_match.flatten().nonzero()[:, 0]
        entry = _pick((index + start[:, None]).flatten(), matched)
        return matched, _pick(self.number.flatten(), matched), _pick(tables.counts, entry)

    def _sums(self, values: Tensor) -> Tensor:
        """Values of matches summed for each sample and n, in the order of the words: (matches, K) to (B, 4, N, K)."""
        batch, orders, samples, steps = self.number.shape
        kinds = values.shape[-1]
        row = self.matched // steps
        total = values.new_zeros(batch * orders * samples * kinds)
        total.index_add_(0, (row[:, None] * kinds + torch.arange(kinds, device=row.device)).flatten(), values.flatten())
        return total.view(batch, orders, samples, kinds)

    @cached_property
    def cider(self) -> Tensor:
        """CIDEr-D: (B, N)."""
        tables = self.tables
        vector = self.count * _pick(tables.weight, self.number)  # (B, 4, N, T)
        norm = _square_root((vector**2).cumsum(-1)[..., -1])  # (B, 4, N); in the order of the words, as `sum` is not
        reference = self.matched_counts * _pick(tables.weight, self.matched_number)[:, None]  # (matches, R)
        own = _pick(vector.flatten(), self.matched)[:, None]
        dots = self._sums(torch.minimum(own, reference) * reference)  # (B, 4, N, R)
        norms = norm[..., None] * tables.norms[self.images][:, :, None]
        cosine = (dots / norms).masked_fill_(norms == 0, 0)
        lengths = tables.lengths[self.images][:, None]  # (B, 1, R)
        delta = ((self.length - 1).clamp(min=0)[..., None] - (lengths - 1).clamp(min=0)).abs()  # (B, N, R)
        penalty = _pick(tables.penalty, delta.clamp(max=_PENALTIES - 1))
        similarity = (cosine * penalty[:, None]).cumsum(-1)[..., -1]  # (B, 4, N)
        references = (lengths >= 0).sum(-1)
        cider: Tensor = similarity.cumsum(1)[:, -1] / ORDERS / references * 10.0
        return cider

    @cached_property
    def bleu(self) -> Tensor:
        """BLEU-1 to 4 of each sample alone: (B, 4, N)."""
        own = _pick(self.count.flatten(), self.matched)
        clipped = torch.minimum(own, self.matched_counts.amax(-1))[:, None]
        matched = self._sums(clipped.double())[..., 0]  # (B, 4, N)
        orders = torch.arange(1, ORDERS + 1, device=matched.device)[:, None]
        possible = (self.length[:, None] - orders + 1).clamp(min=0).double()
        means = ((matched + _TINY) / (possible + _SMALL)).cumprod(1) ** (1 / orders.double())
        lengths = self.tables.lengths[self.images][:, None]  # (B, 1, R)
        distance = (lengths - self.length[..., None]).abs() * (int(lengths.max()) + 1) + lengths
        nearest_length = distance.where(lengths >= 0, torch.iinfo(torch.int64).max).argmin(-1)
        reference = lengths.expand(*self.length.shape, -1).gather(-1, nearest_length[..., None])[..., 0]
        ratio = (self.length.double() + _TINY) / (reference.double() + _SMALL)
        return means * torch.where(ratio < 1, (1 - 1 / ratio).exp(), 1.0)[:, None]


def _pick(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]`, which `index_select` does in a fraction of the time."""
    return table.index_select(0, index.flatten()).view(*index.shape, *table.shape[1:])


def _square_root(values: Tensor) -> Tensor:
    """Correctly rounded: on a CPU torch takes MKL's, which is not always."""
    return torch.from_numpy(np.sqrt(values.numpy())) if values.device.type == "cpu" else values.sqrt()


def _prepare(
    references: Sequence[Sequence[Sequence[int]]], vocabulary_size: int, frequency: DocumentFrequency | None
) -> _Tables:
    """Number all n-grams of the references and of the document frequencies, and count them."""
    sizes = [len(captions) for captions in references]
    listed = [] if frequency is None else [tuple(map(int, gram)) for gram in frequency.counts]
    index = _index([*chain.from_iterable(references), *listed], sizes, vocabulary_size)
    own = int(index.lengths[: sum(sizes)].sum())  # words before this index are of references

    keys, numbers = [np.array([np.iinfo(np.int64).max])], [np.array([-1])]
    frequencies, entries = [], []
    first, shorter = 0, index.words
    for n, (at, gram, grams) in enumerate(index.numbered(), start=1):
        number = np.full_like(index.words, -1)
        number[at] = gram + first
        if n > 1:
            once = at[np.unique(gram, return_index=True)[1]]
            keys.append(shorter[once] * vocabulary_size + index.words[once + n - 1])
            numbers.append(number[once])
        matches = index.entries(at[at < own], gram[at < own], grams)
        if frequency is None:
            in_images = matches.gram[np.diff(matches.group, prepend=-1) != 0]
            frequencies.append(np.bincount(in_images, minlength=grams).astype(np.float64))
        else:
            of_this_length = index.lengths[sum(sizes) :] == n
            given = np.zeros(grams)
            starts = index.starts[sum(sizes) :][of_this_length]
            given[number[starts] - first] = np.fromiter(frequency.counts.values(), np.float64)[of_this_length]
            frequencies.append(given)
        entries.append((matches, first))
        first, shorter = first + grams, number
    images = len(sizes) if frequency is None else frequency.images
    weight = np.log(float(images)) - np.log(np.maximum(1.0, np.concatenate([*frequencies, [0.0]])))
    all_keys = np.concatenate(keys)
    order = np.argsort(all_keys)
    return _Tables(
        all_keys[order],
        np.concatenate(numbers)[order],
        weight,
        *_by_image(entries, sizes, index, weight),
        np.array([math.e ** (-(float(delta) ** 2) / (2 * SIGMA**2)) for delta in range(_PENALTIES)]),
    )


def _index(captions: Sequence[Sequence[int]], sizes: Sequence[int], vocabulary_size: int) -> NgramIndex:
    """Captions as one array: first those of each image, then n-grams that belong to none."""
    lengths = np.fromiter(map(len, captions), np.int64, len(captions))
    words = np.fromiter(chain.from_iterable(captions), np.int64, int(lengths.sum()))
    if len(words) and not 0 <= words.min() <= words.max() < vocabulary_size:
        raise DataError(f"Word ids are below {vocabulary_size}; the references have {words.min()} to {words.max()}.")
    image = np.repeat(np.arange(len(sizes)), sizes)
    return NgramIndex(
        vocabulary=list(map(str, range(vocabulary_size))),
        words=words,
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
        image=np.concatenate([image, np.full(len(captions) - len(image), len(sizes))]),
        is_prediction=np.zeros(len(captions), dtype=bool),
    )


def _by_image(
    entries: Sequence[tuple[NgramCounts, int]], sizes: Sequence[int], index: NgramIndex, weight: npt.NDArray[np.float64]
) -> tuple[Integers, Integers, npt.NDArray[np.int16], npt.NDArray[np.float64], Integers]:
    """The n-grams of each image's references, their counts, and the references' norms and lengths."""
    captions, images, most = sum(sizes), len(sizes), max(sizes)
    image = index.image[:captions]
    column = np.arange(captions) - (np.cumsum(sizes) - sizes)[image]  # of the image's references
    of_word = np.repeat(np.arange(len(index.lengths)), index.lengths)
    norms = np.zeros((images, ORDERS, most))
    for order, (matches, first) in enumerate(entries):
        squares = np.zeros(len(index.words))
        squares[matches.position] = (matches.count * weight[matches.gram + first]) ** 2
        norms[image, order, column] = np.sqrt(np.bincount(of_word, squares, len(index.lengths)))[:captions]
    lengths = np.full((images, most), -1)
    lengths[image, column] = index.lengths[:captions]

    caption = np.concatenate([matches.caption for matches, _ in entries])
    gram = np.concatenate([matches.gram + first for matches, first in entries])
    count = np.concatenate([matches.count for matches, _ in entries])
    by_image = np.lexsort((gram, image[caption]))
    caption, gram, count = caption[by_image], gram[by_image], count[by_image]
    is_new = (np.diff(image[caption], prepend=-1) != 0) | (np.diff(gram, prepend=-1) != 0)
    counts = np.zeros((int(is_new.sum()) + 1, most), dtype=np.int16)
    counts[np.cumsum(is_new) - 1, column[caption]] = count
    starts = np.searchsorted(image[caption][is_new], np.arange(images + 1))
    return starts, np.append(gram[is_new], np.iinfo(np.int64).max), counts, norms, lengths
