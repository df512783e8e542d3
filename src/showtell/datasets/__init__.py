"""Datasets of images with captions: every format is read to the same records."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from showtell.datasets import coco, corrections, flickr, jsonl, karpathy, table, text_files, xmp
from showtell.datasets.image_files import names_in
from showtell.datasets.issues import DatasetIssues, counted, examine
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.errors import DataError, one_line, shorten, summarise
from showtell.files import listed_paths, names_of, read_json
from showtell.images.photo_files import is_image_file
from showtell.registry import Registry

__all__ = ["READERS", "Box", "CaptionDataset", "CaptionRecord", "Grounding", "Reader", "open_dataset", "read_dataset"]


class Reader(Protocol):
    """A dataset format: a module or object with these three."""

    EXAMPLE: str  # a minimal dataset of this format, for a message

    def recognises(self, path: Path) -> bool:
        """Whether an existing file or folder is of this format, without reading all of it."""

    def read(self, path: Path) -> CaptionDataset:
        """Read a dataset with its problems and warnings, but for those that `read_dataset` finds in every dataset."""


# If several recognise a folder, the first reads it.
READERS: Registry[Reader] = Registry(
    "showtell.readers",
    {
        "corrections": corrections,
        "karpathy": karpathy,
        "coco": coco,
        "flickr": flickr,
        "table": table,
        "jsonl": jsonl,
        "text_files": text_files,
        "xmp": xmp,
    },
    expects="a module or object with EXAMPLE, recognises and read",
    accepts=lambda name, reader: all(hasattr(reader, part) for part in ("EXAMPLE", "recognises", "read")),
)

# Advice on files in which photos and captions are packed.
_UNPACK = "unpack each tar into a folder of its own (tar xf 00000.tar -C 00000), whose photos lie beside their texts"
_PACKED = {
    **dict.fromkeys((".tar", ".tar.gz", ".tgz", ".zip"), _UNPACK),
    **dict.fromkeys((".parquet", ".arrow"), "write photos and captions.jsonl from it, as docs/datasets.md shows"),
}


def read_dataset(path: Path | str | Sequence[Path | str], *, with_photos: bool = True) -> CaptionDataset:
    """Read a dataset of any known format, problems and warnings included.

    Args:
        path: a file or folder; or several, as a list or as text, "[a,b]", with ids that begin with the part's name.
        with_photos: count missing image files as a problem; their features may be all that is needed.

    Raises:
        DataError: there is nothing at the path, or no reader recognises it.
    """
    paths = listed_paths(str(path)) if isinstance(path, str | Path) else list(map(str, path))
    if len(paths) != 1:
        return _read_parts(paths, with_photos=with_photos)
    path, collects_garbage = Path(paths[0]), gc.isenabled()
    gc.disable()  # it would visit millions of new objects, nearly all of which stay: a third of the time for COCO
    try:
        if "\0" in str(path) or not path.exists():
            raise DataError(f"There is no file or folder {path}.")
        reader = next((reader for reader in READERS.values() if reader.recognises(path)), None)
        if reader is None:
            raise DataError(f"{path} is not a dataset: it is {_describe(path)}")
        dataset = reader.read(path)
        issues = DatasetIssues(path, list(dataset.problems), list(dataset.warnings))
        examine(dataset.records, issues, with_photos=with_photos)
    except OSError as error:
        raise DataError(f"Cannot read {error.filename or path}: {error.strerror or error}.") from error
    finally:
        if collects_garbage:
            gc.enable()
    problems, warnings = map(one_line, issues.problems), map(one_line, issues.warnings)
    return replace(dataset, problems=tuple(problems), warnings=tuple(warnings))


def _read_parts(paths: Sequence[str], *, with_photos: bool) -> CaptionDataset:
    """Several datasets as one; the problems and warnings of each begin with its name."""
    parts: list[tuple[str, CaptionDataset]] = []
    records: list[CaptionRecord] = []
    issues = DatasetIssues(Path(f"[{','.join(paths)}]"))
    for name, own in zip(names_of(paths), paths, strict=True):
        try:
            part = read_dataset(own, with_photos=with_photos)
        except DataError as error:
            issues.problems.append(str(error))
            continue
        parts.append((name, part))
        issues.problems += [f"{name}: {sentence}" for sentence in part.problems]
        issues.warnings += [f"{name}: {sentence}" for sentence in part.warnings]
        records += [replace(record, image_id=f"{name}/{record.image_id}", part=name) for record in part.records]
    if not paths or len(set(map(os.path.realpath, paths))) < len(paths):
        issues.problems.append(f"{issues.root} names no dataset, or one twice; list each once, such as [a,b].")
    first: dict[str, CaptionRecord] = {}
    shared: dict[tuple[str, str], list[str]] = {}
    twice = []
    for record in records:
        same = first.setdefault(os.path.realpath(record.path), record)
        if same.split != record.split:
            shared.setdefault((same.split, record.split), []).append(f"{same.image_id} = {record.image_id}")
        elif same.part != record.part:
            twice.append(record.image_id)
    issues.shared(shared, "image is|images are", "the same file in {} and {}")
    issues.warning(twice, "image is|images are", "in two of the datasets", "it counts as two of one split")
    return replace(
        issues.dataset("several", records),
        has_drawn_splits=any(part.has_drawn_splits for _, part in parts),
        parts={name: part.root for name, part in parts},
    )


def open_dataset(path: Path | str | Sequence[Path | str], *, with_photos: bool = True) -> CaptionDataset:
    """Read a dataset that can be used.

    Args:
        path: as of `read_dataset`.
        with_photos: whether the image files have to be there.

    Raises:
        DataError: it has problems; the message has the first of them and says how to see the rest.
    """
    dataset = read_dataset(path, with_photos=with_photos)
    if dataset.problems:
        first, more = " ".join(dataset.problems[:3]), len(dataset.problems) - 3
        verb = "is" if more == 1 else "are"
        rest = f" There {verb} {counted(more, 'more problem')}: showtell data check {dataset.root}"
        raise DataError(f"{dataset.root} cannot be used. {first}{rest if more > 0 else ''}")
    return dataset


def _describe(path: Path) -> str:
    """What is at a path that no reader recognises, and what it lacks, to end a sentence; broken JSON is a DataError."""
    known = f"The formats are {', '.join(READERS)}: docs/datasets.md."
    if path.is_dir():
        held = _describe_folder(path)
        return f"a folder with {held}" if known in held else f"a folder with {held} {known}"
    if not path.is_file():
        return "a device, a pipe or a socket; name a file or a folder."
    if (columns := table.columns_of(path)) is not None:
        return table.describe_columns(columns)
    if advice := next((advice for suffix, advice in _PACKED.items() if path.name.lower().endswith(suffix)), None):
        return f"packed: {advice}. {known}"
    if path.suffix.lower() != ".json":
        return f"a file of another kind; write {table.EXAMPLE} {known}"
    content = read_json(path)
    first = content[0] if isinstance(content, list) and content else content
    keys = summarise((shorten(key, 20) for key in first), limit=5) if isinstance(first, dict) else ""
    if isinstance(content, dict) and ("images" in content or "annotations" in content):
        return (
            f'JSON with the keys {keys}; COCO captions need lists "images" (id, file_name) and "annotations" '
            '(image_id, caption), Karpathy\'s a list "images" (filename, split, sentences).'
        )
    where = "a list of objects with" if isinstance(content, list) else "JSON with"
    return f"{where} {f'the keys {keys}' if keys else 'no keys'}; write {jsonl.EXAMPLE}. {known}"


def _describe_folder(path: Path) -> str:
    """What a folder holds that no reader recognises, and what it lacks."""
    names = sorted(file.name + "/" * file.is_dir() for file in path.iterdir())
    others = [name for name in names if not is_image_file(name)]
    if broken := next((name for name in others if table.columns_of(path / name)), None):
        return f"{broken}, {_describe(path / broken)}"
    images = len(names) - len(others) or sum(map(is_image_file, names_in(str(path / "images"))))
    shown = summarise((shorten(name, 30) for name in others), limit=5) or "nothing else"
    held = f"{counted(images, 'image')} and {shown}"
    below = [name for *_, files in os.walk(path) for name in files]
    packed = (advice for suffix, advice in _PACKED.items() for name in below if name.lower().endswith(suffix))
    if advice := next(packed, None):
        return f"{held}: {advice}."
    if unread := next((name for name in others if name.lower().endswith(".json")), None):
        return f"{unread}, {_describe(path / unread)}"
    if images or any(map(is_image_file, below)):
        return f"{held}, but without captions: write {table.EXAMPLE}, or each beside its photo, in dog.txt."
    return f"{held}, but neither photos nor captions."
