"""Training batches: each image once with all its chosen captions, so that it is read and encoded once for all of them.

Which images share a batch and which captions are chosen is a function of (seed, epoch, image id) alone.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from showtell.cores import usable_cores
from showtell.counter_rng import key_of
from showtell.datasets.records import CaptionRecord
from showtell.errors import ImageError
from showtell.features.store import FeatureStore, ImageFeatures, collate_features
from showtell.images.loading import PreparedPhotos, prefetch_map, stack_images
from showtell.text.vocabulary import Vocabulary
from showtell.training.mentions import ImageMentions, collate_mentions, find_mentions
from showtell.types import Batch, NamingWords

STORE_READERS = 4  # threads that read a store for a GPU; a CPU needs one, which is a batch ahead and one more
WORDS_MULTIPLE, REGIONS_MULTIPLE = 4, 16  # to which batches for a GPU are padded, regions where images differ
STUCK = 600  # seconds without an answer, after which reading photos is an error


@dataclass(frozen=True)
class Example:
    """One image as it is trained on."""

    image_id: str
    image: torch.Tensor | ImageFeatures  # the photo, or its features from a store
    words: list[torch.Tensor]  # of each caption, as ids
    mentions: ImageMentions | None = None  # of these captions
    window: tuple[float, float, float, float] = (0, 0, 0, 0)  # the part of the photo that is seen; of mentions alone


class TrainingSet(Dataset[Example]):
    """Images with their captions as ids, by (epoch, index); a DataError if there are no mentions as `naming` wants."""

    def __init__(
        self,
        records: Sequence[CaptionRecord],
        images: PreparedPhotos | FeatureStore,  # of the records, photos in the same order
        vocabulary: Vocabulary,
        *,
        captions_per_image: int,  # at most; of an image with more, another choice each epoch
        max_length: int,  # in words; longer captions are truncated
        seed: int,
        naming: NamingWords | None = None,  # which words name objects, for attention supervision
    ) -> None:
        self.images = images
        self._ids = [record.image_id for record in records]
        self._words = [
            [torch.tensor(vocabulary.encode_text(caption, max_length)) for caption in record.captions]
            for record in records
        ]
        self.rows = max((min(len(captions), captions_per_image) for captions in self._words), default=0)
        self.lengths = [max((len(words) for words in captions), default=0) for captions in self._words]
        self._captions_per_image = captions_per_image
        self._seed = seed
        self._mentions: list[ImageMentions] | None = None
        if naming is not None:
            lengths = [[len(words) - 1 for words in captions] for captions in self._words]
            self._mentions = find_mentions(records, lengths, naming=naming)

    def contents(self) -> Iterator[tuple[str, list[list[int]]]]:
        """Image ids with the ids of their words, for a fingerprint."""
        for image_id, captions in zip(self._ids, self._words, strict=True):
            yield image_id, [words.tolist() for words in captions]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: tuple[int, int]) -> Example:
        epoch, image = index
        image_id, words = self._ids[image], self._words[image]
        captions = list(range(len(words)))
        if len(words) > self._captions_per_image:
            choose = random.Random(key_of(self._seed, "captions", epoch, image_id))
            captions = choose.sample(captions, self._captions_per_image)
        chosen = [words[caption] for caption in captions]
        mentions = self._mentions[image].chosen(captions) if self._mentions else None
        if isinstance(self.images, FeatureStore):
            features, preprocessing = self.images[image_id], self.images.info.preprocessing
            window = preprocessing.window(features.size) if preprocessing else (0, 0, *features.size)
            return Example(image_id, features, chosen, mentions, window)
        photo = self.images.photo(image)
        return Example(image_id, photo.pixels, chosen, mentions, photo.window)


def collate(examples: Sequence[Example], rows: int | None = None) -> Batch:
    """Examples as one batch, padded to the longest; with a fixed number of captions, `rows`, to few shapes."""
    is_static = rows is not None
    rows = rows or max(len(example.words) for example in examples)
    padded = [example.words + [torch.tensor([Vocabulary.pad])] * (rows - len(example.words)) for example in examples]
    flat = pad_sequence([w for words in padded for w in words], batch_first=True, padding_value=Vocabulary.pad)
    if is_static:
        flat = F.pad(flat, (0, -(flat.shape[-1] - 1) % WORDS_MULTIPLE), value=Vocabulary.pad)
    photos = [example.image for example in examples if isinstance(example.image, torch.Tensor)]
    stored = [example.image for example in examples if isinstance(example.image, ImageFeatures)]
    mentions = [example.mentions for example in examples if example.mentions is not None]
    windows = [example.window for example in examples]
    return Batch(
        image_ids=tuple(example.image_id for example in examples),
        images=stack_images(photos) if photos else None,
        features=collate_features(stored, REGIONS_MULTIPLE if is_static else 1) if stored else None,
        words=flat.view(len(examples), rows, -1),
        is_caption=torch.tensor([[row < len(example.words) for row in range(rows)] for example in examples]),
        mentions=collate_mentions(mentions, windows, (rows, flat.shape[-1] - 1)) if mentions else None,
    )


def epoch_plan(lengths: Sequence[int], *, batch_size: int, bucket: int, seed: int, epoch: int) -> list[list[int]]:
    """The batches of one epoch, from 0, as indices of images in random order; the one that is not full comes last.

    Each run of `bucket` batches is sorted by the length of the longest caption and cut, so that little is padding, and
    the batches are shuffled again (the idea of Xu et al. 2015, §4.3, on groups of an image's captions).
    """
    chance = random.Random(key_of(seed, "order", epoch))
    order = list(range(len(lengths)))
    chance.shuffle(order)
    if bucket > 1:
        runs = [order[first : first + bucket * batch_size] for first in range(0, len(order), bucket * batch_size)]
        order = [image for run in runs for image in sorted(run, key=lambda image: lengths[image])]
    plan = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    if bucket > 1:
        full = [batch for batch in plan if len(batch) == batch_size]
        chance.shuffle(full)
        plan = full + [batch for batch in plan if len(batch) < batch_size]
    return plan


def epoch_batches(
    data: TrainingSet,
    *,
    epoch: int,
    skip: int,  # batches of the epoch that were already trained on
    batch_size: int,  # images over all processes together
    bucket: int,
    seed: int,
    workers: int,  # processes that read photos that are not in memory; a store is read by threads
    process: int = 0,
    processes: int = 1,
    for_gpu: bool = False,  # pad to a few shapes, and put batches into pinned memory
) -> Iterator[Batch]:
    """The batches of one epoch for one process, which gets its share of the images of each.

    In a last batch of fewer images than processes, one without an image gets the first, as a dummy batch, to keep pace.
    """
    plan = epoch_plan(data.lengths, batch_size=batch_size, bucket=bucket, seed=seed, epoch=epoch)[skip:]
    shares = [[(epoch, image) for image in batch[process::processes] or batch[:1]] for batch in plan]
    put_together = partial(collate, rows=data.rows if for_gpu else None)
    batches: Iterable[Batch]
    if isinstance(data.images, FeatureStore):

        def read(share: list[tuple[int, int]]) -> Batch:
            batch = put_together([data[index] for index in share])
            return batch.pin_memory() if for_gpu else batch

        workers = min(STORE_READERS, usable_cores()) if for_gpu else 1
        batches = prefetch_map(read, shares, ahead=workers + 1, workers=workers)
    else:
        workers = 0 if data.images.in_memory else workers
        batches = DataLoader(
            data, batch_sampler=shares, collate_fn=put_together, num_workers=workers,
            pin_memory=for_gpu, timeout=STUCK if workers else 0,
        )  # fmt: skip
    try:
        for images, batch in zip(plan, batches, strict=True):
            yield batch if process < len(images) else dataclasses.replace(batch, is_dummy=True)
    except ImageError as error:  # that of a process has its traceback before it
        raise ImageError(str(error).rpartition(f"{ImageError.__name__}: ")[2].strip()) from error
