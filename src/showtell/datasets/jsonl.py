"""JSON lines: an object per image or per caption, each in a line of its own; or the same objects in one JSON list.

The keys are called as the columns of a table are. A caption is a text or a list of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from showtell.datasets.caption_rows import CaptionRows, Columns
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.source_files import MAX_JSON_FILES, list_files, read_start
from showtell.datasets.splits import sort_by_split, split_of_file
from showtell.errors import DataError, summarise
from showtell.files import parse_json, read_json, read_text

EXAMPLE = 'captions.jsonl with the line {"image": "dog.jpg", "captions": ["A dog runs."]} beside dog.jpg'

_LINES = (".jsonl", ".ndjson")
_KEY = re.compile(r'"([^"\\]+)"\s*:')


def recognises(path: Path) -> bool:
    """Whether this is a file of JSON objects with a key for images and one for captions, or a folder with some."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read a file, or the files of a folder if each gives the split of its images.

    Images are searched in the folder of the file and in `images/`.
    """
    issues = DatasetIssues(path)
    files = _files(path)
    unsplit = [file for file in files if not split_of_file(file.stem)]
    if len(files) > 1 and unsplit:
        issues.problems.append(
            f"{path} holds {len(files)} files of JSON captions, and {summarise(map(issues.display, unsplit))} does not "
            "say for which split it is; join them to one, or name them train.jsonl, val.jsonl, test.jsonl."
        )
        files = []
    return issues.dataset("jsonl", issues.collect(files, _read_file))


# --- which files ---


def _files(path: Path) -> list[Path]:
    files = [file for file in list_files(path, _LINES) if _holds_captions(file)]
    if not files:
        lists = list_files(path, (".json",))
        files = [file for file in lists if _holds_captions(file)] if len(lists) <= MAX_JSON_FILES else []
    return sort_by_split(files)


def _holds_captions(file: Path) -> bool:
    """Whether the first object of a file has a key for an image's file and one for captions.

    A number is no file name: `[{"image_id": 1, "caption": ...}]` are results, not a dataset.
    """
    start = read_start(file).lstrip()
    if file.suffix.lower() == ".json":
        if not start.startswith("["):
            return False
        start = start[1:].lstrip()
    try:
        first, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):  # a whole line that is broken: its keys tell what it should be
        return "\n" in start and Columns.of(_KEY.findall(start)) is not None
    columns = Columns.of(list(first)) if isinstance(first, dict) else None
    return columns is not None and isinstance(list(first.values())[columns.image], str)


# --- one file ---


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    if file.suffix.lower() == ".json":
        rows = CaptionRows(file, issues, ("in entry", "in entries"))
        entries: Iterable[tuple[int, Any]] = enumerate(_list_of(file), start=1)
    else:
        rows = CaptionRows(file, issues)
        entries = _lines(file, issues)
    columns_of: dict[tuple[str, ...], Columns | None] = {}
    unusable = []
    for number, entry in entries:
        keys = tuple(entry) if isinstance(entry, dict) else ()
        if keys not in columns_of:
            columns_of[keys] = Columns.of(keys)
        columns = columns_of[keys]
        if columns is None or not _add(rows, number, list(entry.values()), columns):
            unusable.append(number)
    if unusable:
        issues.problems.append(
            f"{issues.display(file)} has no object with an image and its captions {rows.locate(unusable)}; an object "
            'is like {"image": "dog.jpg", "captions": ["A dog runs."], "split": "train"}.'
        )
    return rows.records([file.parent, file.parent / "images"], 'a key "split" would choose them')


def _list_of(file: Path) -> list[Any]:
    content = read_json(file)
    return content if isinstance(content, list) else [content]


def _lines(file: Path, issues: DatasetIssues) -> Iterator[tuple[int, Any]]:
    """The content of the lines that are not blank, each with its number; broken lines become problems."""
    broken: dict[int, str] = {}
    for number, line in enumerate(read_text(file, "JSON lines").split("\n"), start=1):
        if line.strip():
            try:
                yield number, parse_json(line, f"{issues.display(file)}, line {number},")
            except DataError as error:
                broken[number] = str(error)
    issues.problems.extend(list(broken.values())[:1])
    more = "{file} is not valid JSON on further lines: {items}."
    issues.problem(list(broken)[1:], more, file=issues.display(file))


def _add(rows: CaptionRows, number: int, values: list[Any], columns: Columns) -> bool:
    """Add an object as a row; False if a value is of the wrong type."""
    name = _text(values[columns.image])
    captions = [text for column in columns.captions for text in _texts(values[column])]
    split = _text(None if columns.split is None else values[columns.split])
    image_id = _text(None if columns.id is None else values[columns.id])
    if name is None or split is None or image_id is None or not all(isinstance(text, str) for text in captions):
        return False
    rows.add(number, name, captions, split, image_id)
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
