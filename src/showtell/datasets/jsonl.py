"""JSON lines: an object per image or per caption, each in a line of its own; or the same objects in one JSON list.

The keys are called as the columns of a table are. A caption is a text or a list of texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from showtell.datasets.encoding import read_start, read_text
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.listing import Listing, Roles
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_of_file, split_rank
from showtell.errors import DataError, summarise
from showtell.files import parse_json, read_json

EXAMPLE = 'captions.jsonl with the line {"image": "dog.jpg", "captions": ["A dog runs."]} beside dog.jpg'

_LINES = (".jsonl", ".ndjson")
_MOST_FILES = 50  # a folder with more JSON files than this holds one per image, not datasets
_MOST_SHOWN = 3  # broken lines that get a sentence of their own


def recognises(path: Path) -> bool:
    """Whether this is a file of JSON objects with a key for images and one for captions, or a folder with some."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read the file of a folder, or one file; several only where each says for which split it is.

    Images are looked for in the folder of the file and in `images/`.
    """
    issues = DatasetIssues(path)
    files = _files(path)
    unsplit = [file for file in files if not split_of_file(file.stem)]
    if len(files) > 1 and unsplit:
        issues.problems.append(
            f"{path} holds {len(files)} files of JSON captions, and {summarise(map(issues.shown, unsplit))} does not "
            "say for which split it is; join them to one, or name them train.jsonl, val.jsonl, test.jsonl."
        )
        files = []
    records: list[CaptionRecord] = []
    for file in files:
        try:
            records.extend(_read_file(file, issues))
        except DataError as error:
            issues.problems.append(str(error))
    return issues.dataset("jsonl", records)


# --- which files ---


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if _holds_captions(path) else []
    names = [name for name in sorted(os.listdir(path)) if not name.startswith(".")]  # noqa: PTH208 (names are enough)
    lines = [path / name for name in names if name.lower().endswith(_LINES)]
    lists = [path / name for name in names if name.lower().endswith(".json")]
    found = [file for file in lines if _holds_captions(file)]
    if not found and len(lists) <= _MOST_FILES:
        found = [file for file in lists if _holds_captions(file)]
    return sorted(found, key=lambda file: split_rank(split_of_file(file.stem) or ""))


def _holds_captions(file: Path) -> bool:
    """Whether the first object of a file has a key for an image's file and one for captions.

    A number names no file: `[{"image_id": 1, "caption": ...}]` are results, not a dataset.
    """
    suffix = file.suffix.lower()
    if suffix not in (*_LINES, ".json") or not file.is_file():
        return False
    start = read_start(file).lstrip()
    if suffix == ".json":
        if not start.startswith("["):
            return False
        start = start[1:].lstrip()
    try:
        first, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):
        return False
    roles = Roles.of(list(first)) if isinstance(first, dict) else None
    return roles is not None and isinstance(list(first.values())[roles.image], str)


# --- one file ---


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    if file.suffix.lower() == ".json":
        listing = Listing(file, issues, ("in entry", "in entries"))
        entries: Iterable[tuple[int, Any]] = enumerate(_list_of(file), start=1)
    else:
        listing = Listing(file, issues)
        entries = _lines(file, issues)
    roles_of: dict[tuple[str, ...], Roles | None] = {}
    unusable = []
    for place, entry in entries:
        keys = tuple(entry) if isinstance(entry, dict) else ()
        if keys not in roles_of:
            roles_of[keys] = Roles.of(keys)
        roles = roles_of[keys]
        if roles is None or not _add(listing, place, list(entry.values()), roles):
            unusable.append(place)
    if unusable:
        issues.problems.append(
            f"{issues.shown(file)} has no object with an image and its captions {listing.at(unusable)}; an object is "
            'like {"image": "dog.jpg", "captions": ["A dog runs."], "split": "train"}.'
        )
    return listing.records([file.parent, file.parent / "images"], 'a key "split" would choose them')


def _list_of(file: Path) -> list[Any]:
    content = read_json(file)
    return content if isinstance(content, list) else [content]


def _lines(file: Path, issues: DatasetIssues) -> Iterator[tuple[int, Any]]:
    """What stands in the lines that are not blank, each with its number; broken ones become problems."""
    broken = []
    for number, line in enumerate(read_text(file, "JSON lines").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield number, parse_json(line, f"{issues.shown(file)}, line {number},")
        except DataError as error:
            broken.append((number, str(error)))
    issues.problems.extend(sentence for _, sentence in broken[:_MOST_SHOWN])
    if len(broken) > _MOST_SHOWN:
        more = [number for number, _ in broken[_MOST_SHOWN:]]
        issues.problems.append(f"{issues.shown(file)} is not valid JSON on {len(more)} more lines: {summarise(more)}.")


def _add(listing: Listing, place: int, values: list[Any], roles: Roles) -> bool:
    """Add an object to a listing by what its keys stand for; False if a value is of the wrong kind."""
    name = _text(values[roles.image])
    captions = [text for column in roles.captions for text in _texts(values[column])]
    split = _text(None if roles.split is None else values[roles.split])
    image_id = _text(None if roles.id is None else values[roles.id])
    if name is None or split is None or image_id is None or not all(isinstance(text, str) for text in captions):
        return False
    listing.add(place, name, captions, split, image_id)
    return True


def _text(value: Any) -> str | None:
    """A text, or a whole number as one; empty for null, None for anything else."""
    if value is None:
        return ""
    return str(value) if isinstance(value, str) or type(value) is int else None


def _texts(value: Any) -> list[Any]:
    """The captions that a value holds, unchecked."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
