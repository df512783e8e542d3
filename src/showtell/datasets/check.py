"""The examination behind `showtell data check`: every image opened, every count made, every oddity a sentence."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from showtell.datasets.findings import Findings, counted, missing_files
from showtell.datasets.records import CaptionDataset, Record
from showtell.datasets.splits import split_rank
from showtell.errors import ImageError, summarise
from showtell.images.photo import decode_photo, read_photo

MOST_NAMED = 10  # unreadable images that get a sentence of their own
_IMAGES_PER_PROCESS = 500  # so many small ones are opened while a process starts
_CHUNK = 16  # images that a process is given at a time


@dataclass(frozen=True)
class Spread:
    """How some whole numbers lie."""

    least: int
    mean: float
    median: float
    most: int

    @staticmethod
    def of(numbers: Sequence[int]) -> Spread | None:
        """The spread of some numbers; None of none."""
        if not numbers:
            return None
        return Spread(min(numbers), statistics.fmean(numbers), statistics.median(numbers), max(numbers))


@dataclass(frozen=True)
class Report:
    """What an examination of a dataset found."""

    format: str
    splits: dict[str, tuple[int, int]]  # images and captions of each split: train, val, test, then others
    captions_per_image: Spread | None
    words_per_caption: Spread | None  # words as white space parts them
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def images(self) -> int:
        """Number of images in all splits."""
        return sum(images for images, _ in self.splits.values())

    @property
    def captions(self) -> int:
        """Number of captions in all splits."""
        return sum(captions for _, captions in self.splits.values())

    def as_json(self) -> dict[str, Any]:
        """The object that `data check --json` prints."""
        return {
            "format": self.format,
            "images": self.images,
            "captions": self.captions,
            "splits": {name: images for name, (images, _) in self.splits.items()},
            "captions_per_image": _spread_as_json(self.captions_per_image),
            "words_per_caption": _spread_as_json(self.words_per_caption),
            "problems": list(self.problems),
            "warnings": list(self.warnings),
        }


def _spread_as_json(spread: Spread | None) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"min": spread.least, "mean": spread.mean, "median": spread.median, "max": spread.most}


def check_dataset(dataset: CaptionDataset, progress: Callable[[int, int], None] = lambda done, total: None) -> Report:
    """Examine a dataset: open every image, compare their contents, count splits and captions.

    Args:
        dataset: as `read_dataset` found it; its problems and warnings come first in the report.
        progress: called after each image with the number of those opened and of those there are.
    """
    findings = Findings(dataset.root, list(dataset.problems), list(dataset.warnings))
    images = dataset.splits
    captions: Counter[str] = Counter()
    for record in dataset.records:
        captions[record.split] += len(record.captions)
    splits = {name: (images[name], captions[name]) for name in sorted(images, key=split_rank)}
    if splits and "train" not in splits:
        findings.warnings.append(
            f"There is no split train, only {', '.join(splits)}: nothing can be learned from this, only scored."
        )
    _examine_images(dataset.records, findings, progress)
    return Report(
        dataset.format,
        splits,
        Spread.of([len(record.captions) for record in dataset.records]),
        Spread.of([len(text.split()) for record in dataset.records for text in record.captions]),
        tuple(findings.problems),
        tuple(findings.warnings),
    )


# --- images ---


def _examine_images(records: Sequence[Record], findings: Findings, progress: Callable[[int, int], None]) -> None:
    missing = set(missing_files(records))  # a problem already
    first: dict[Path, Record] = {}
    for record in records:
        if record.path not in missing:
            first.setdefault(record.path, record)
    paths = list(first)
    unreadable: list[tuple[Path, str]] = []
    alike: dict[bytes, list[Record]] = {}
    for done, (path, (digest, error)) in enumerate(zip(paths, _look_at_all(paths), strict=True), start=1):
        if error:
            unreadable.append((path, error))
        else:
            alike.setdefault(digest, []).append(first[path])
        progress(done, len(paths))
    findings.problems.extend(error for _, error in unreadable[:MOST_NAMED])
    more = [findings.shown(path) for path, _ in unreadable[MOST_NAMED:]]
    if more:
        findings.problems.append(f"{counted(len(more), 'more image')} cannot be read: {summarise(more)}.")
    _examine_contents(alike.values(), findings)


def _look_at_all(paths: Sequence[Path]) -> Iterator[tuple[bytes, str]]:
    """What `_look_at` says of each image, in order, from as many processes as pay."""
    processes = min(_cores(), len(paths) // _IMAGES_PER_PROCESS)
    if processes < 2:
        yield from map(_look_at, paths)
        return
    # Spawned, not forked: the caller may have threads. Threads instead would wait for each other's Python.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(_look_at, paths, chunksize=_CHUNK)


def _cores() -> int:
    """How many cores this process may use, where the system tells; else how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _look_at(path: Path) -> tuple[bytes, str]:
    """The digest of an image file, and what is wrong with it, empty if nothing is."""
    try:
        content = read_photo(path)
        decode_photo(content, str(path))
    except ImageError as error:
        return b"", str(error)
    return hashlib.blake2b(content, digest_size=16).digest(), ""


def _examine_contents(alike: Iterable[list[Record]], findings: Findings) -> None:
    """Name images that are the same file, byte for byte, under different names."""
    repeated: list[str] = []
    shared: dict[tuple[str, str], list[str]] = {}
    for records in filter(lambda records: len(records) > 1, alike):
        of_split: dict[str, Record] = {}
        for record in records:
            name = findings.shown(record.path)
            if record.split in of_split:
                repeated.append(f"{name} = {findings.shown(of_split[record.split].path)}")
                continue
            for split, other in of_split.items():
                shared.setdefault((split, record.split), []).append(f"{findings.shown(other.path)} = {name}")
            of_split[record.split] = record
    if repeated:
        findings.warnings.append(
            f"{counted(len(repeated), 'image repeats', 'images repeat')} another of the same split "
            f"byte for byte: {summarise(repeated)}."
        )
    for (one, other_split), names in shared.items():
        findings.problems.append(
            f"{counted(len(names), 'image is', 'images are')} the same, byte for byte, in {one} and "
            f"{other_split}: {summarise(names)}; what is scored must not have been trained on."
        )
