"""Many photos, prepared for an encoder: kept in memory where they fit, read when asked for, or ahead in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from showtell.errors import ImageError
from showtell.images.photo import PhotoSource, to_photo
from showtell.images.prefetch import prefetch_map
from showtell.images.preprocessing import Preprocessing
from showtell.types import PreparedBatch

SourceT = TypeVar("SourceT")
PreparedT = TypeVar("PreparedT")
READERS = 2  # threads; Pillow decodes and resizes outside the interpreter's lock


@dataclass(frozen=True)
class PreparedPhoto:
    """A photo as the encoder wants it, and what is needed to find its pixels again."""

    pixels: Tensor  # (3, height, width) uint8
    size: tuple[int, int]  # (width, height) of the upright photo
    window: tuple[float, float, float, float]  # the part that `pixels` show: left, top, right, bottom in the photo


def prepare_photo(source: PhotoSource, preprocessing: Preprocessing) -> PreparedPhoto:
    """Open a photo and prepare it; an ImageError if it is none."""
    photo = to_photo(source, preprocessing.min_decoded_size)
    return PreparedPhoto(preprocessing.prepare(photo.image, photo.size), photo.size, preprocessing.window(photo.size))


def stack_images(images: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Prepared photos, each (3, height, width), as one tensor (B, 3, height, width) where all have one size."""
    return torch.stack(list(images)) if len({image.shape for image in images}) == 1 else tuple(images)


def stack_photos(photos: Sequence[PreparedPhoto]) -> PreparedBatch:
    """Prepared photos as an encoder takes them."""
    windows = torch.tensor([photo.window for photo in photos], dtype=torch.float32)
    return PreparedBatch.of(stack_images([photo.pixels for photo in photos]), windows)


def prepare_batches(
    sources: Iterable[SourceT], prepare: Callable[[SourceT], PreparedT], batch_size: int, *, first_alone: bool = False
) -> Iterator[list[tuple[SourceT, PreparedT | ImageError]]]:
    """Prepared photos in batches and in order, the next batch being read by threads while one is used.

    Args:
        sources: the photos; drawn from a batch ahead.
        prepare: opens and prepares a photo.
        batch_size: photos in a batch; the last may be smaller.
        first_alone: the first batch is a single photo, for who waits for a first result.

    Yields:
        Each source with its photo, or with the error of one that is no image.
    """

    def read(source: SourceT) -> tuple[SourceT, PreparedT | ImageError]:
        try:
            return source, prepare(source)
        except ImageError as error:
            return source, error

    photos = prefetch_map(read, sources, ahead=batch_size, workers=READERS)
    size = 1 if first_alone else batch_size
    try:
        while batch := list(islice(photos, size)):
            yield batch
            size = batch_size
    finally:
        photos.close()


class PreparedPhotos:
    """Prepared photos by index, (3, height, width) uint8; read at once and kept if `memory_megabytes` suffice.

    `progress` is called with 1 after each photo that is read at once.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        preprocessing: Preprocessing,
        memory_megabytes: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._paths = paths
        self._preprocessing = preprocessing
        self.in_memory = len(paths) * preprocessing.max_bytes <= memory_megabytes * 2**20
        self._kept: list[PreparedPhoto] = []
        if self.in_memory:
            with ThreadPoolExecutor(max_workers=4) as pool:
                for photo in pool.map(prepare_photo, paths, repeat(preprocessing)):
                    self._kept.append(photo)
                    if progress:
                        progress(1)

    def photo(self, index: int) -> PreparedPhoto:
        """The photo with its size and window."""
        return self._kept[index] if self.in_memory else prepare_photo(self._paths[index], self._preprocessing)
