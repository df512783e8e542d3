"""JSON lines: an object per image or per caption, each in a line of its own; or the same objects in one JSON list.

The keys are called as the columns of a table are. A caption is a text or a list of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from showtell.datasets.entries import CaptionRows, Columns, read_files
from showtell.datasets.image_files import MAX_JSON_FILES, list_files, read_start
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import sort_by_split, split_of_file
from showtell.files import parse_json, read_json, read_text

EXAMPLE = 'captions.jsonl with the line {"image": "dog.jpg", "captions": ["A dog runs."]} beside dog.jpg'

_FORM = '{"image": "dog.jpg", "captions": ["A dog runs."], "split": "train"}'
_KEY = re.compile(r'"([^"\\]+)"\s*:')


def recognises(path: Path) -> bool:
    """Whether this is a file of JSON objects with a key for images and one for captions, or a folder with some."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read a file, or the files of a folder if each gives the split of its images.

    Images are searched in the folder of the file and in `images/`.
    """
    files = _files(path)
    unsplit = [file for file in files if not split_of_file(file.stem)]
    return read_files("jsonl", files, DatasetIssues(path), _read_file, unsplit)


def _files(path: Path) -> list[Path]:
    files = [file for file in list_files(path, (".jsonl", ".ndjson")) if _holds_captions(file)]
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
        return "\n" in start and Columns.of(tuple(_KEY.findall(start))) is not None
    columns = Columns.of(tuple(first)) if isinstance(first, dict) else None
    return columns is not None and isinstance(list(first.values())[columns.image], str)


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    is_list = file.suffix.lower() == ".json"
    rows = CaptionRows(file, issues, _FORM, "entry|entries" if is_list else "line|lines")
    entries: Iterable[tuple[int, Any]]
    if is_list:
        entries = enumerate(read_json(file), start=1)
    else:
        lines, shown = enumerate(read_text(file, "JSON lines").split("\n"), start=1), issues.display(file)
        entries = ((number, parse_json(line, f"{shown}, line {number},")) for number, line in lines if line.strip())
    for number, entry in entries:
        columns = Columns.of(tuple(entry)) if isinstance(entry, dict) else None
        if columns is None:
            rows.unusable.append(number)
        else:
            rows.add(number, columns, list(entry.values()))
    return rows.records([file.parent, file.parent / "images"], 'a key "split"')
