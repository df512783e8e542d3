"""Predictions in a file: {id: text}, COCO results, or what `showtell caption` writes, matched to images by photo."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets.source_files import read_text
from showtell.datasets.table import CORRECTIONS, from_text_cell
from showtell.errors import DataError, summarise
from showtell.files import parse_json, read_json
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
        notes.append(f"{path} has no caption of {len(failed)} photos: {summarise(failed)}.")
    return matched, notes


def photo_names(photo: Path) -> dict[str, str]:
    """The names under which an image may be listed whose photo this is, by their kind, the most specific first.

    >>> list(photo_names(Path("/photos/000012.jpg")).values())
    ['/photos/000012.jpg', '/photos/000012.jpg', '000012.jpg', '000012', '12']
    """
    number = re.search(r"[0-9]+$", photo.stem)
    return {
        "full path": os.path.abspath(photo),  # noqa: PTH100 (resolve() would follow links)
        "path": str(photo),
        "file name": photo.name,
        "file name without suffix": photo.stem,
        **({"number at the end of the file name": str(int(number.group()))} if number else {}),
    }


def _match(captions: Mapping[str, str], images: ScoredImages, path: Path) -> tuple[dict[str, str], list[str]]:
    """The captions of photos by image id, and how the photos were matched."""
    if not captions:
        raise DataError(f"{path} has no captions.")
    by_name = _images_by_name(images)
    photos = {name: photo_names(Path(name)) for name in captions}
    kinds = Counter(kind for names in photos.values() for kind, name in names.items() if name in by_name)
    if not kinds:
        raise DataError(
            f"{path} has captions of {summarise(captions, 3)}, and none of them is one of the images to score "
            f"({summarise(images.facts, 3)}): photos are matched by path, file name, file name without suffix, or the "
            "number at its end."
        )
    kind = max(photo_names(Path("0")), key=lambda kind: kinds[kind])  # of equal ones the most specific
    matched: defaultdict[str, list[str]] = defaultdict(list)
    for name, names in photos.items():
        matched[by_name.get(names.get(kind, ""), name)].append(name)
    twice = [f"{image} ({summarise(names, 2)})" for image, names in matched.items() if len(names) > 1]
    if twice:
        raise DataError(f"By {kind}, {path} has captions of more than one photo for image {summarise(twice, 3)}.")
    note = f"{kinds[kind]} photos of {path} are matched to images by {kind}."
    return {image: captions[name] for image, (name,) in matched.items()}, [note]


def _images_by_name(images: ScoredImages) -> dict[str, str]:
    """Image id by each name that means one image alone: its id, its file, and those without folders."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for image in images.facts:
        file = images.files.get(image)
        for name in (image, *([] if file is None else [file])):
            by_name[name].add(image)
            by_name[os.path.abspath(name)].add(image)  # noqa: PTH100
            by_name[Path(name).name].add(image)
    return {name: next(iter(found)) for name, found in by_name.items() if len(found) == 1}


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
