"""JSON lines: an object per image or per caption, each in a line of its own; or the same objects in one JSON list.

The keys are called as the columns of a table are. A caption is a text or a list of texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from showtell.datasets.entries import CaptionRows, list_below, read_files
from showtell.datasets.image_files import read_start
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.files import parse_json, read_text
from showtell.text.caption_columns import Columns

EXAMPLE = 'captions.jsonl with the line {"image": "dog.jpg", "captions": ["A dog runs."]} beside dog.jpg'

_FORM = '{"image": "dog.jpg", "captions": ["A dog runs."], "split": "train"}'
_NO_SPACE = re.compile(r"\S")
_KEY = re.compile(r'"([^"\\]+)"\s*:')


def recognises(path: Path) -> bool:
    """Whether this is a file of JSON objects with a key for images and one for captions, or a folder with some."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read a file, or the files of a folder or else of its subfolders, beside their images or a folder `images/`."""
    return read_files("jsonl", _files(path), DatasetIssues(path), _read_file)


def _files(path: Path) -> dict[Path, Columns]:
    def keys(file: Path) -> Columns | None:
        return _keys(file, is_named=file == path)

    return list_below(path, (".jsonl", ".ndjson"), keys) or list_below(path, (".json",), keys)


def _keys(file: Path, *, is_named: bool) -> Columns | None:
    """The keys of the first object of a file, if it has one for an image's file and one for captions."""
    start = read_start(file).lstrip()
    if file.suffix.lower() == ".json":
        if not start.startswith("["):
            return None
        start = start[1:].lstrip()
    try:
        first, _ = json.JSONDecoder().raw_decode(start)
    except (ValueError, RecursionError):  # a whole line that is broken, or longer: its keys tell what it should be
        end = start.find("\n")
        return Columns.of(tuple(_KEY.findall(start[:end] if end >= 0 else start)))
    if isinstance(first, dict) and first.keys() == {"image", "error"}:  # of `showtell caption`
        return Columns.of(("image", "caption"))
    columns = Columns.of(tuple(first)) if isinstance(first, dict) else None
    # a number is no file name, unless the file is named outright: [{"image_id": 1, "caption": ...}] may be results
    is_file = columns is not None and (is_named or isinstance(list(first.values())[columns.image], str))
    return columns if is_file else None


def read_values(file: Path, name: str) -> Iterator[tuple[int, Any]]:
    """The values in a file, numbered by their lines, or those of its one list; messages call the file `name`."""
    form = "JSON" if file.suffix.lower() == ".json" else "JSON lines"
    text, decoder = read_text(file, form), json.JSONDecoder()
    line = end = 0
    is_first = True
    while following := _NO_SPACE.search(text, end):
        start = following.start()
        line += text.count("\n", end, start)
        try:
            end = decoder.raw_decode(text, start)[1]
        except (ValueError, RecursionError):
            end = len(text)  # `parse_json` says what is wrong
        is_whole = is_first and not text[end:].strip()
        value = parse_json(text[start:end], name if is_whole else f"{name}, line {line + 1},")
        if is_whole and isinstance(value, list):
            yield from enumerate(value, start=1)
        else:
            yield line + 1, value
        line += text.count("\n", start, end)
        is_first = False


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    rows = CaptionRows(file, issues, _FORM, "entry|entries" if file.suffix.lower() == ".json" else "line|lines")
    failed = []
    for number, entry in read_values(file, issues.display(file)):
        columns = Columns.of(tuple(entry)) if isinstance(entry, dict) else None
        if columns is not None and ("error" not in entry or entry.get("captions")):
            rows.add(number, columns, list(entry.values()))
        elif isinstance(entry, dict) and isinstance(entry.get("error"), str):  # of `showtell caption`
            failed.append(entry["error"])
        else:
            rows.unusable.append(number)
    issues.warning(failed, "entry|entries", f"of {issues.display(file)} without captions, left out")
    return rows.records([file.parent, file.parent / "images"], 'a key "split"')
