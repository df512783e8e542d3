"""Predictions in a file: {id: text}, COCO results, and what `showtell caption` writes, matched to images."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets.table import CORRECTIONS, from_text_cell
from showtell.errors import DataError, UsageError, summarise
from showtell.files import parse_json, read_json, read_text
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.captions import read_predictions
from showtell.scores.files import ScoredImages

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_prediction_file(path: Path, images: ScoredImages) -> tuple[dict[str, str], list[str]]:
    """Image id to caption, the first where a photo has several, and sentences on how the file was read.

    Photos are matched to images by one kind of name: the kind of `photo_names` by which most of them are found. Those
    that are not found keep their names as ids.

    Args:
        path: JSON of {id: text}; or entries of `image_id` and `caption` (COCO results), or of `image` and `captions` or
            `caption` (`showtell caption`), as JSON, JSON lines or CSV.
        images: what the photos are matched to.

    Raises:
        DataError: the file cannot be read or has another form, none of its photos is found, or two are found for one
            image.
        UsageError: it is in a form that holds no captions to score.
    """
    content = _read_content(path)
    if not isinstance(content, list) or not any(isinstance(entry, Mapping) and "image" in entry for entry in content):
        return read_predictions(content), []
    captions: dict[str, str] = {}
    failed = []
    is_table = path.suffix.lower() in _DELIMITERS
    folder = path.parent if is_table and tuple(content[0]) == CORRECTIONS else Path()
    for number, entry in enumerate(content):
        name, text = _read_entry(entry, f"Entry {number} of {path}")
        if text is None:
            failed.append(name)
        elif not is_table:
            if name in captions:
                raise DataError(f"{path} has captions of {name} twice; keep one of them.")
            captions[name] = text
        else:  # a row for each caption, the likeliest first
            captions.setdefault(str(folder / from_text_cell(name)), from_text_cell(text))
    matched, notes = _match(captions, images, path)
    if failed:
        notes.append(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    return matched, notes


def _read_content(path: Path) -> Any:
    """The JSON of a file, its lines of JSON, or the rows of its table as objects."""
    suffix = path.suffix.lower()
    if suffix in (".txt", ".text"):
        raise UsageError(
            f"{path} is text, which has no form to score; caption with --out FILE.csv or FILE.json instead."
        )
    if suffix == ".jsonl":
        lines = enumerate(read_text(path, "JSON lines").split("\n"), start=1)
        return [parse_json(line, f"Line {number} of {path}") for number, line in lines if line.strip()]
    return _read_table(path, _DELIMITERS[suffix]) if suffix in _DELIMITERS else read_json(path)


def _read_table(path: Path, delimiter: str) -> list[dict[str, str]]:
    """The rows of a table with the columns image (or image_id) and caption."""
    text = StringIO(read_text(path, "CSV"), newline="")
    reader = csv.DictReader(text, restval="", strict=True, delimiter=delimiter)
    try:
        columns = reader.fieldnames or ()
        missing = [] if {"image", "image_id"} & set(columns) else ["image"]
        missing += [] if "caption" in columns else ["caption"]
        if missing:
            raise DataError(f"{path} has no column {' and no column '.join(missing)}; predictions have both.")
        return list(reader)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} at line {reader.line_num}.") from error


def _read_entry(entry: Any, where: str) -> tuple[str, str | None]:
    """The name of a photo and its first caption; None where there is an error in its place."""
    try:
        captions = entry.get("captions") or ()
        text = entry["caption"] if "caption" in entry else captions[0]["text"] if captions else None
        if isinstance(entry["image"], str) and isinstance(text, str | None):
            return entry["image"], text
    except (TypeError, LookupError, AttributeError):
        pass
    raise DataError(f'{where} is no photo with its captions: {{"image": path, "captions": [{{"text": text}}]}}.')


def _match(captions: Mapping[str, str], images: ScoredImages, path: Path) -> tuple[dict[str, str], list[str]]:
    """The captions of photos by image id, and how the photos were matched."""
    if not captions:
        raise DataError(f"{path} has no captions.")
    by_name = images_by_name(
        {image: [image, *([images.files[image]] if image in images.files else [])] for image in images.facts}
    )
    image_ids, kind = match_photos(map(Path, captions), by_name)
    if kind is None:
        raise DataError(
            f"{path} has captions of {summarise(captions, 3)}, and none of them is one of the images to score "
            f"({summarise(images.facts, 3)}; --split chooses others): photos are matched by path, file name, file name "
            "without suffix, or the number at its end."
        )
    matched: dict[str, list[str]] = {}
    for name in captions:
        matched.setdefault(image_ids.get(Path(name), name), []).append(name)
    twice = [f"{image} ({summarise(names, 2)})" for image, names in matched.items() if len(names) > 1]
    if twice:
        raise DataError(f"By {kind}, {path} has captions of more than one photo for image {summarise(twice, 3)}.")
    note = f"Photos of {path} are matched to images by {kind}: {len(image_ids)} of {len(captions)}."
    return {image: captions[name] for image, (name,) in matched.items()}, [note]
