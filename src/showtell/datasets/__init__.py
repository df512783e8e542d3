"""Datasets: every source becomes the same records."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from showtell.datasets import coco, flickr, hub, jsonl, karpathy, table, text_files
from showtell.datasets.issues import DatasetIssues, counted, examine
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.errors import DataError, printable, summarise
from showtell.files import read_json
from showtell.images.photo_files import is_image_file
from showtell.registry import Registry

__all__ = ["READERS", "Box", "CaptionDataset", "CaptionRecord", "Grounding", "Reader", "open_dataset", "read_dataset"]


class Reader(Protocol):
    """What a format is to everyone else: a module with these three."""

    EXAMPLE: str  # the least that makes a dataset of this format, for a message

    def recognises(self, path: Path) -> bool:
        """Whether an existing file or folder is of this format, by a look at it and not a full reading."""

    def read(self, path: Path) -> CaptionDataset:
        """Read what is recognised, gathering problems and warnings; what every dataset is examined for
        (missing files, images without captions, ids and files used twice) is left to `read_dataset`.
        """


# Where a folder fits several, the first that recognises it reads it.
READERS: Registry[Reader] = Registry(
    "showtell.readers",
    {
        "hub": hub,  # by its name; the others look at what is there
        "karpathy": karpathy,
        "coco": coco,
        "flickr": flickr,
        "table": table,
        "jsonl": jsonl,
        "text_files": text_files,
    },
    expects="a module or object with EXAMPLE, recognises and read",
    accepts=lambda name, reader: all(hasattr(reader, part) for part in ("EXAMPLE", "recognises", "read")),
)


def read_dataset(path: Path | str) -> CaptionDataset:
    """Read a dataset of any known format as it is: what is wrong with it stands in its problems and warnings.

    Raises:
        DataError: there is nothing at the path, or no reader recognises it.
    """
    path = Path(path)
    try:
        return _read(path)
    except OSError as error:
        raise DataError(f"Cannot read {error.filename or path}: {error.strerror or error}.") from error
    except ValueError as error:
        if "\0" not in str(path):
            raise
        raise DataError(f"There is no file or folder {str(path)!r}.") from error


def _read(path: Path) -> CaptionDataset:
    if not path.exists() and not hub.recognises(path):
        raise DataError(f"There is no file or folder {path}.")
    reader = next((reader for reader in READERS.values() if reader.recognises(path)), None)
    if reader is None:
        what, remedy = _what_it_is(path)
        raise DataError(f"{path} is not a dataset: it is {what}{remedy}.")
    with _without_garbage_collection():
        dataset = reader.read(path)
        issues = DatasetIssues(path, list(dataset.problems), list(dataset.warnings))
        examine(dataset.records, issues)
    return replace(
        dataset,
        problems=tuple(map(printable, issues.problems)),
        warnings=tuple(map(printable, issues.warnings)),
    )


def open_dataset(path: Path | str) -> CaptionDataset:
    """Read a dataset that can be used.

    Raises:
        DataError: it has problems; the message has the first of them and says how to see the rest.
    """
    dataset = read_dataset(path)
    if dataset.problems:
        first, more = " ".join(dataset.problems[:3]), len(dataset.problems) - 3
        verb = "is" if more == 1 else "are"
        rest = f" There {verb} {counted(more, 'more problem')}: showtell data check {path}" if more > 0 else ""
        raise DataError(f"{path} cannot be used. {first}{rest}")
    return dataset


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Spare millions of new objects, nearly all of which stay, from being gone through again and again.

    It takes a third off the time for COCO.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _what_it_is(path: Path) -> tuple[str, str]:
    """What is found at a path that no reader recognises, and what to do about it: two parts of one sentence.

    Raises:
        DataError: a JSON file that is broken.
    """
    if path.is_dir():
        return _what_folder(path)
    columns = table.columns_of(path)
    if columns is not None:
        what = f"a table with the columns {', '.join(columns)}, of which none is for images or none for captions"
        return what, "; call one column image and one caption"
    if path.suffix.lower() == ".json":
        content = read_json(path)
        what = f"JSON with the keys {summarise(content)}" if isinstance(content, dict) else "JSON without keys"
        return what, _understood()
    return "a file of another kind", _understood()


def _what_folder(folder: Path) -> tuple[str, str]:
    with os.scandir(folder) as entries:
        names = sorted(entry.name + "/" * entry.is_dir() for entry in entries)
    others = [name for name in names if not is_image_file(name)]
    for name in others:
        if table.columns_of(folder / name) is not None:
            what, remedy = _what_it_is(folder / name)
            return f"a folder whose {name} is {what}", remedy
    images = counted(len(names) - len(others), "image")
    return f"a folder with {images} and {summarise(others) or 'nothing else'}", _understood()


def _understood() -> str:
    examples = "; ".join(f"{name}: {reader.EXAMPLE}" for name, reader in READERS.items())
    return f". Understood are {examples.rstrip('.')}"
