"""Ray Data: actors that hold the captioner, on this machine or a cluster, and parts that stream through them.

A row that goes in is a part; rows that come out are batches of records, as soon as they are there. The actors read the
photos themselves, with the threads of the plain engine, and the captioner does with a part what it does with a folder:
the two engines give the same captions. What travels between processes is the captioner, once for each actor, names and
captions; photos do not, which is why the object store can be small.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from showtell.bulk.cluster import STORE, connected
from showtell.bulk.parts import Part, Source, part_from_json, part_to_json, read_part
from showtell.captioners import Captioner
from showtell.captions import CaptionResult, caption_result
from showtell.cores import usable_cores
from showtell.decoding import DecodingConfig
from showtell.errors import ImageError
from showtell.images.loading import READERS
from showtell.images.photo import IN_MEMORY


@dataclass(frozen=True)
class CaptionedBatch:
    """Consecutive results of a part, or its end."""

    number: int  # of the part
    first: int  # of these records in the part, counted from 0
    records: list[CaptionResult]  # of consecutive photos
    is_end: bool  # there are no records any more, and `first` is how many there were


def caption_parts(
    captioner: Captioner,
    parts: Iterable[tuple[int, Part]],
    settings: DecodingConfig,
    *,
    batch_size: int = 32,
    attention: bool = False,
    workers: int | None = None,
) -> Iterator[CaptionedBatch]:
    """Caption parts with Ray Data. The batches of several parts come mixed, each as soon as it is captioned.

    Args:
        captioner: what each actor gets a copy of; it is moved to the CPU.
        parts: each with its number.
        settings: of the search.
        batch_size: photos that are encoded together.
        attention: whether to keep where the words looked.
        workers: actors; None: one for each GPU, or for each core where there is none. Never more than there are parts.

    Raises:
        MissingDependencyError: Ray is not installed.
        UsageError: no cluster lets us in at RAY_ADDRESS.
    """
    numbered = [{"number": number, "part": json.dumps(part_to_json(part))} for number, part in parts]
    if not numbered:
        return
    with connected(STORE + 2 * captioner.memory_bytes):
        import ray.data

        resources = ray.cluster_resources()
        cores, gpus = resources.get("CPU", 1), resources.get("GPU", 0)
        size = min(workers or int(gpus) or int(cores), len(numbered))
        threads = max(1, int(cores) // size)
        data = ray.data.from_items(numbered, override_num_blocks=len(numbered))  # a part is a task
        data.context.target_max_block_size = 1  # a row leaves the actor when it is there, not when there are 128 MB
        data.context.enable_progress_bars = False
        data.context.print_on_execution_start = False
        captioned = data.map_batches(
            _Worker,
            batch_size=None,
            fn_constructor_kwargs={
                "captioner": [ray.put(captioner.to("cpu"))],  # in a list it stays a reference
                "settings": settings,
                "batch_size": batch_size,
                "attention": attention,
                "threads": threads,
                "folder": str(Path.cwd()),
            },
            # The second part waits at the actor, so that there is none between two.
            compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
            num_cpus=min(1, cores / size),
            num_gpus=min(1, gpus / size),
        )
        for row in captioned.iter_rows():
            yield CaptionedBatch(row["number"], row["first"], json.loads(row["records"]), row["is_end"])


class _Worker:
    """What an actor does: parts in, batches of records out."""

    def __init__(
        self,
        captioner: list[Any],
        settings: DecodingConfig,
        batch_size: int,
        attention: bool,
        threads: int,
        folder: str,
    ) -> None:
        import ray
        import torch

        if Path(folder).is_dir():
            os.chdir(folder)  # names of files are those of the command
        torch.set_num_threads(min(threads, usable_cores()))
        has_gpu = torch.cuda.is_available()
        self._captioner: Captioner = ray.get(captioner[0]).to("cuda" if has_gpu else "cpu")
        self._settings = settings
        self._batch_size = batch_size
        self._attention = attention
        self._readers = max(READERS, threads) if has_gpu else READERS

    def __call__(self, rows: dict[str, Any]) -> Iterator[dict[str, list[Any]]]:
        for number, content in zip(rows["number"], rows["part"], strict=True):
            photos = read_part(part_from_json(json.loads(content)), self._batch_size)
            records = caption_sources(
                self._captioner, photos, self._settings, self._batch_size, self._attention, self._readers
            )
            first = 0
            while batch := list(islice(records, self._batch_size)):
                yield _row(number, first, batch)
                first += len(batch)
            yield _row(number, first, [], is_end=True)


def _row(number: int, first: int, records: list[CaptionResult], is_end: bool = False) -> dict[str, list[Any]]:
    """`CaptionedBatch` as a block of one row."""
    return {"number": [number], "first": [first], "records": [json.dumps(records)], "is_end": [is_end]}


def caption_sources(
    captioner: Captioner,
    photos: Iterable[tuple[str, Source]],
    settings: DecodingConfig,
    batch_size: int,
    attention: bool = False,
    readers: int = READERS,
) -> Iterator[CaptionResult]:
    """The records of photos with names, in their order, those included that could not be fetched."""
    waiting: deque[tuple[str, ImageError | None]] = deque()  # what was drawn and has no record yet

    def fetched() -> Iterator[Path | bytes]:
        for name, source in photos:
            if isinstance(source, ImageError):
                waiting.append((name, source))
            else:
                waiting.append((name, None))
                yield source

    def lost() -> Iterator[CaptionResult]:
        while waiting and (error := waiting[0][1]) is not None:
            yield caption_result(waiting.popleft()[0], error)

    for _, captions in captioner.caption_photos(
        fetched(), settings, batch_size, first_alone=False, attention=attention, readers=readers
    ):
        yield from lost()
        name = waiting.popleft()[0]
        if isinstance(captions, ImageError):
            captions = ImageError(str(captions).replace(IN_MEMORY, name, 1))
        yield caption_result(name, captions)
    yield from lost()
