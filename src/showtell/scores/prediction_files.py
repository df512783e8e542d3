"""Predictions in a file: {id: text}, COCO results, or what `showtell caption` writes, matched to images by photo."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets.source_files import read_text
from showtell.datasets.table import CORRECTIONS, from_text_cell
from showtell.errors import DataError, UsageError, summarise
from showtell.files import parse_json, read_json
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.captions import read_predictions
from showtell.scores.files import ScoredImages


def read_prediction_file(path: Path, images: ScoredImages) -> tuple[dict[str, str], list[str]]:
    """Image id to caption, and what a person should know of how they were matched, a sentence each.

    Of several captions of a photo the first one counts. Photos are matched to images by one kind of name: the kind of
    `photo_names` by which most of them are found. Those that are not found keep their names as ids.

    Args:
        path: JSON of {id: text}, COCO results, or JSON, JSON lines or CSV of `showtell caption`.
        images: what the photos are matched to.

    Raises:
        DataError: the file cannot be read or has another form, none of its photos is found, or two are found for one
            image.
    """
    suffix = path.suffix.lower()
    if suffix in (".txt", ".text"):
        raise UsageError(
            f"{path} is text, which has no form to score; caption with --out FILE.csv or FILE.json instead."
        )
    if suffix == ".csv":
        return _match(_read_table(path), images, path)
    content = _read_lines(path) if suffix == ".jsonl" else read_json(path)
    if not isinstance(content, list) or not any(isinstance(one, Mapping) and "image" in one for one in content):
        return read_predictions(content), []
    captions, failed = {}, []
    for number, result in enumerate(content):
        name, text = _read_result(result, f"Entry {number} of {path}")
        if text is None:
            failed.append(name)
        elif name in captions:
            raise DataError(f"{path} has captions of {name} twice; keep one of them.")
        else:
            captions[name] = text
    matched, notes = _match(captions, images, path)
    if failed:
        notes.append(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    return matched, notes


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
    matched: defaultdict[str, list[str]] = defaultdict(list)
    for name in captions:
        matched[image_ids.get(Path(name), name)].append(name)
    twice = [f"{image} ({summarise(names, 2)})" for image, names in matched.items() if len(names) > 1]
    if twice:
        raise DataError(f"By {kind}, {path} has captions of more than one photo for image {summarise(twice, 3)}.")
    note = f"Photos of {path} are matched to images by {kind}: {len(image_ids)} of {len(captions)}."
    return {image: captions[name] for image, (name,) in matched.items()}, [note]


def _read_result(result: Any, where: str) -> tuple[str, str | None]:
    """The name of a photo and its first caption; None in place of an error or where there is none."""
    try:
        name, captions = result["image"], result.get("captions", ())
        text = captions[0]["text"] if captions else None
        if isinstance(name, str) and isinstance(text, str | None):
            return name, text
    except (TypeError, LookupError, AttributeError):
        pass
    raise DataError(f'{where} is no photo with its captions: {{"image": path, "captions": [{{"text": text}}]}}.')


def _read_lines(path: Path) -> list[Any]:
    lines = enumerate(_read_text(path, "JSON lines").split("\n"), start=1)
    return [parse_json(line, f"Line {number} of {path}") for number, line in lines if line.strip()]


def _read_table(path: Path) -> dict[str, str]:
    """The first caption of each photo of a table; those of corrections are named from the table's folder."""
    reader = csv.DictReader(StringIO(_read_text(path, "CSV"), newline=""), restval="", strict=True)
    captions: dict[str, str] = {}
    try:
        columns = reader.fieldnames or ()
        missing = [name for name in ("image", "caption") if name not in columns]
        if missing:
            raise DataError(f"{path} has no column {' and no column '.join(missing)}; predictions have both.")
        folder = path.parent if tuple(columns) == CORRECTIONS else Path()
        for row in reader:
            name, text = (from_text_cell(row[column]) for column in ("image", "caption"))
            captions.setdefault(str(folder / name), text)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} at line {reader.line_num}.") from error
    return captions


def _read_text(path: Path, form: str) -> str:
    if not path.is_file():
        raise DataError(f"There is no file {path}.")
    return read_text(path, form)
