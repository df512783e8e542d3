"""Many photos, prepared for an encoder: kept in memory where they fit, read when asked for, or ahead in batches.

Threads read them, one for each core. Pillow decodes and resizes outside the interpreter's lock, but a photo of 2,000 x
1,500 holds it for 1 to 2 ms (docs/lab_notes.md). So the threads of a process read some hundred photos a
second, however many cores there are, and what starts a GPU's kernels waits for them: for a GPU, processes take over.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat, takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from showtell.cores import usable_cores
from showtell.errors import ImageError
from showtell.images import photo as photo_files
from showtell.images.photo import PhotoSource, to_photo
from showtell.images.preprocessing import Preprocessing
from showtell.types import PreparedBatch

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
SourceT = TypeVar("SourceT")
PreparedT = TypeVar("PreparedT")
NUM_WORKERS = usable_cores()  # threads, or processes
PHOTOS_BY_THREADS = 256  # photos that threads read first: to start the processes takes as long
CHUNK = 8  # photos that a process reads and hands on together


def prefetch(items: Iterable[ItemT], *, ahead: int) -> Iterator[ItemT]:
    """The same items, drawn by a thread ahead of their use; `ahead` is that of `prefetch_map`."""
    remaining = iter(items)
    drawn = prefetch_map(lambda _: list(islice(remaining, 1)), repeat(None), ahead=ahead)
    yield from chain.from_iterable(takewhile(bool, drawn))


def prefetch_map(
    function: Callable[[ItemT], ResultT], items: Iterable[ItemT], *, ahead: int, workers: int = 1
) -> Generator[ResultT]:
    """The results of a function for items, in order, `ahead` of them computed by threads while one is used."""
    remaining = iter(items)
    waiting: deque[Future[ResultT]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        while True:
            waiting.extend(pool.submit(function, item) for item in islice(remaining, ahead + 1 - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class PreparedPhoto:
    """A photo as the encoder wants it, and what is needed to find its pixels again."""

    pixels: Tensor  # (3, height, width) uint8
    size: tuple[int, int]  # (width, height) of the upright photo
    window: tuple[float, float, float, float]  # the part that `pixels` show: left, top, right, bottom in the photo

    def __reduce__(self) -> tuple[Any, ...]:
        """Send pixels to another process as bytes; for a tensor it would open a file and a connection."""
        return _from_array, (self.pixels.numpy(), self.size, self.window)

    def pin_memory(self) -> PreparedPhoto:
        """The same in memory from which a GPU copies while the program goes on."""
        return replace(self, pixels=self.pixels.pin_memory())


def _from_array(pixels: np.ndarray, *others: Any) -> PreparedPhoto:
    return PreparedPhoto(torch.from_numpy(pixels), *others)


def prepare_photo(source: PhotoSource, preprocessing: Preprocessing) -> PreparedPhoto:
    """Open a photo and prepare it; an ImageError if it is none."""
    photo = to_photo(source, preprocessing.min_decoded_size)
    return PreparedPhoto(preprocessing.prepare(photo.image, photo.size), photo.size, preprocessing.window(photo.size))


def stack_images(images: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Prepared photos, each (3, height, width), as one tensor (B, 3, height, width) where all have one size."""
    return torch.stack(list(images)) if len({image.shape for image in images}) == 1 else tuple(images)


def stack_photos(photos: Sequence[PreparedPhoto], device: torch.device | None = None) -> PreparedBatch:
    """Prepared photos as an encoder takes them, their pixels on a device."""
    windows = torch.tensor([photo.window for photo in photos], dtype=torch.float32)
    pixels = [photo.pixels.to(device, non_blocking=True) for photo in photos]  # each by itself, as it was pinned
    return PreparedBatch.of(stack_images(pixels), windows)


def prepare_batches(
    sources: Iterable[SourceT],
    prepare: Callable[[SourceT], PreparedT],
    batch_size: int,
    *,
    first_alone: bool = False,  # for who waits for a first result
    device: torch.device | None = None,
) -> Iterator[list[tuple[SourceT, PreparedT | ImageError]]]:
    """Prepared photos, or the errors of those that are none, in batches and in order, the next read meanwhile."""

    def read(source: SourceT) -> PreparedT | ImageError:
        try:
            return prepare(source)
        except ImageError as error:
            return error

    photos = _read_ahead(iter(sources), read, batch_size, device is not None and device.type == "cuda")
    size = 1 if first_alone else batch_size
    try:
        while batch := list(islice(photos, size)):
            yield batch
            size = batch_size
    finally:
        photos.close()


def _read_ahead(
    sources: Iterator[SourceT], read: Callable[[SourceT], PreparedT], ahead: int, for_gpu: bool
) -> Generator[tuple[SourceT, PreparedT]]:
    def by_threads(some: Iterable[SourceT]) -> Generator[tuple[SourceT, PreparedT]]:
        return prefetch_map(lambda source: (source, read(source)), some, ahead=ahead, workers=NUM_WORKERS)

    is_of_encoder = False
    for source, photo in by_threads(islice(sources, PHOTOS_BY_THREADS)) if for_gpu else ():
        is_of_encoder |= isinstance(photo, PreparedPhoto)
        yield source, photo
    yield from _read_by_processes(sources, read) if is_of_encoder else by_threads(sources)


def _read_by_processes(
    sources: Iterator[SourceT], read: Callable[[SourceT], PreparedT]
) -> Iterator[tuple[SourceT, PreparedT]]:
    """Photos that processes read, twice `CHUNK` of them for each process ahead."""
    drawn: deque[list[SourceT]] = deque()

    def chunks(first: list[SourceT]) -> Iterator[list[SourceT]]:
        remaining = chain(first, sources)
        while chunk := list(islice(remaining, CHUNK)):
            drawn.append(chunk)
            yield chunk

    if not (first := list(islice(sources, 1))):
        return
    fork = multiprocessing.get_context("fork")  # the processes know `read`, and only sources and photos are sent
    large = fork.Lock()

    def share_lock(_: int) -> None:
        photo_files.one_large = large

    loader = DataLoader(
        _Photos(read), batch_sampler=chunks(first), collate_fn=list, num_workers=NUM_WORKERS, worker_init_fn=share_lock,
        pin_memory=torch.cuda.is_available(), multiprocessing_context=fork, generator=torch.Generator(),
    )  # fmt: skip
    for photos in loader:
        yield from zip(drawn.popleft(), photos, strict=True)


class _Photos(Dataset[Any]):
    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def __getitem__(self, source: Any) -> Any:
        return self._read(source)


class PreparedPhotos:
    """Prepared photos by index; read at once and kept if `memory_megabytes` suffice, with `progress(1)` after each."""

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
            with ThreadPoolExecutor(NUM_WORKERS) as pool:
                for photo in pool.map(prepare_photo, paths, repeat(preprocessing)):
                    self._kept.append(photo)
                    if progress:
                        progress(1)

    def photo(self, index: int) -> PreparedPhoto:
        """The photo with its size and window."""
        return self._kept[index] if self.in_memory else prepare_photo(self._paths[index], self._preprocessing)
