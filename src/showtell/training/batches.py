"""Training batches: an image once, its captions together, so that it is read, moved and encoded once for all of them.

Which images share a batch and which captions are chosen is a function of (seed, epoch, image id) alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from showtell.datasets.records import Record
from showtell.images.loading import Squares
from showtell.noise import key_of
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch


class TrainingSet(Dataset[tuple[str, torch.Tensor, list[torch.Tensor]]]):
    """Images with their captions as ids. An index is (epoch, place)."""

    def __init__(
        self,
        records: Sequence[Record],
        squares: Squares,
        vocabulary: Vocabulary,
        *,
        captions_per_image: int,
        max_length: int,
        seed: int,
    ) -> None:
        self._squares = squares
        self._ids = [record.image_id for record in records]
        self._words = [
            [torch.tensor(vocabulary.encode(tokenize(caption), max_length)) for caption in record.captions]
            for record in records
        ]
        self._captions_per_image = captions_per_image
        self._seed = seed

    @property
    def in_memory(self) -> bool:
        """Whether the photos are kept ready."""
        return self._squares.in_memory

    def contents(self) -> Iterator[tuple[str, list[list[int]]]]:
        """Image ids with the ids of their words, for a fingerprint."""
        for image_id, captions in zip(self._ids, self._words, strict=True):
            yield image_id, [words.tolist() for words in captions]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: tuple[int, int]) -> tuple[str, torch.Tensor, list[torch.Tensor]]:
        epoch, place = index
        image_id, words = self._ids[place], self._words[place]
        if len(words) > self._captions_per_image:
            choose = random.Random(key_of(self._seed, "captions", epoch, image_id))
            words = choose.sample(words, self._captions_per_image)
        return image_id, self._squares[place], words


def collate(examples: Sequence[tuple[str, torch.Tensor, list[torch.Tensor]]]) -> Batch:
    """Put examples into one batch: captions padded to the longest, images to the most captions."""
    rows = max(len(words) for _, _, words in examples)
    padded = [words + [torch.tensor([Vocabulary.pad])] * (rows - len(words)) for _, _, words in examples]
    flat = pad_sequence([w for words in padded for w in words], batch_first=True, padding_value=Vocabulary.pad)
    return Batch(
        image_ids=tuple(image_id for image_id, _, _ in examples),
        images=torch.stack([square for _, square, _ in examples]),
        words=flat.view(len(examples), rows, -1),
        is_caption=torch.tensor([[row < len(words) for row in range(rows)] for _, _, words in examples]),
    )


def epoch_order(images: int, seed: int, epoch: int) -> list[int]:
    """The order of the images in one epoch."""
    order = list(range(images))
    random.Random(key_of(seed, "order", epoch)).shuffle(order)
    return order


def epoch_batches(
    data: TrainingSet,
    *,
    epoch: int,
    skip: int,
    batch_size: int,
    seed: int,
    workers: int,
    process: int = 0,
    processes: int = 1,
) -> Iterator[Batch]:
    """The batches of one epoch for one process.

    Args:
        data: all images.
        epoch: from 0.
        skip: how many batches of the epoch were already trained on.
        batch_size: images over all processes together.
        seed: of the run.
        workers: processes that read photos.
        process: this one's number.
        processes: how many share each batch.
    """
    order = epoch_order(len(data), seed, epoch)
    wholes = [order[first : first + batch_size] for first in range(0, len(order), batch_size)][skip:]
    shares = [[(epoch, place) for place in whole[process::processes]] for whole in wholes]
    loader: Any = DataLoader(
        data,
        batch_sampler=shares,
        collate_fn=collate,
        num_workers=workers,
        persistent_workers=False,
        pin_memory=torch.cuda.is_available(),
    )
    yield from loader
