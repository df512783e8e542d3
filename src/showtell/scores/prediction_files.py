"""Predictions in a file: {id: text}, COCO results, what `showtell caption` and other kits write, matched to images."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets.table import CORRECTIONS, from_text_cell
from showtell.errors import DataError, UsageError, summarise
from showtell.files import parse_json, read_json, read_text
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.captions import read_predictions
from showtell.scores.files import ScoredImages
from showtell.scores.kit_files import KitFile, kit_file, own_references, refuse_other_tables

_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_prediction_file(path: Path, images: ScoredImages) -> tuple[dict[str, str], list[str]]:
    """Image id to caption, the first where a photo has several; see `read_prediction_sets`."""
    sets, notes = read_prediction_sets(path, images)
    return {image: captions[0] for image, captions in sets.items()}, notes


def read_prediction_sets(path: Path, images: ScoredImages) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Image id to its captions, and what a person should know of how they were read, a sentence each.

    Photos are matched to images by one kind of name: the kind of `photo_names` by which most of them are found. Those
    that are not found keep their names as ids.

    Args:
        path: JSON of {id: text}, COCO results, JSON, JSON lines or CSV of `showtell caption`, samples of lmms-eval or
            predictions of VLMEvalKit.
        images: what the photos are matched to.

    Raises:
        DataError: the file cannot be read or has another form, none of its photos is found, or two are found for one
            image.
        UsageError: it is in a form that holds no captions to score.
    """
    suffix = path.suffix.lower()
    if suffix in (".txt", ".text"):
        raise UsageError(
            f"{path} is text, which has no form to score; caption with --out FILE.csv or FILE.json instead."
        )
    content = _read_content(path)
    kit = kit_file(content, path)
    if kit is not None:
        return _match_kit(kit, images, path)
    if suffix in _DELIMITERS:
        return _match(_table_captions(content, path), images, path)
    if not isinstance(content, list) or not any(isinstance(one, Mapping) and "image" in one for one in content):
        return _read_plain(content), []
    captions: dict[str, tuple[str, ...]] = {}
    failed = []
    for number, result in enumerate(content):
        name, texts = _read_result(result, f"Entry {number} of {path}")
        if not texts:
            failed.append(name)
        elif name in captions:
            raise DataError(f"{path} has captions of {name} twice; keep one of them.")
        else:
            captions[name] = texts
    matched, notes = _match(captions, images, path)
    if failed:
        notes.append(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    return matched, notes


def _read_plain(content: Any) -> dict[str, tuple[str, ...]]:
    """{id: text} or COCO results; lmms-eval's results of test sets have a list of one text as caption."""
    entries = content if isinstance(content, list) else []
    lists = [one for one in entries if isinstance(one, Mapping) and isinstance(one.get("caption"), list)]
    if lists and len(lists) == len(entries) and all(one["caption"] for one in lists):
        sets = {str(one.get("image_id")): tuple(one["caption"]) for one in lists}
        first = read_predictions([{**one, "caption": one["caption"][0]} for one in lists])
        return {image: (text, *map(str, sets[image][1:])) for image, text in first.items()}
    return {image: (text,) for image, text in read_predictions(content).items()}


def _match_kit(kit: KitFile, images: ScoredImages, path: Path) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The captions of a kit by image id: by its own ids, or by the names of its files where these are known."""
    by_id = {one.image: one.captions for one in kit.captions}
    if not by_id.keys().isdisjoint(images.facts):
        return by_id, [kit.conventions]
    by_file = {one.file: one.captions for one in kit.captions if one.file is not None}
    try:
        matched, notes = _match(by_file if len(by_file) == len(by_id) else by_id, images, path)
    except DataError as error:
        raise DataError(
            f"{str(error).rstrip('.')}; to score against the references that the file itself has, give no others."
        ) from error
    return matched, [kit.conventions, *notes]


def _match(
    captions: Mapping[str, tuple[str, ...]], images: ScoredImages, path: Path
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
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


def _read_result(result: Any, where: str) -> tuple[str, tuple[str, ...]]:
    """The name of a photo and its captions; none where there is an error in their place."""
    try:
        name, captions = result["image"], result.get("captions") or ()
        texts = tuple(caption["text"] for caption in captions) if captions and captions[0]["text"] is not None else ()
        if all(isinstance(text, str) for text in (name, *texts)):
            return name, texts
    except (TypeError, LookupError, AttributeError):
        pass
    raise DataError(f'{where} is no photo with its captions: {{"image": path, "captions": [{{"text": text}}]}}.')


def read_kit_references(path: Path) -> dict[str, tuple[str, ...]] | None:
    """The references that a file of another kit has beside its captions, by image id; None for other files.

    Raises:
        DataError: some images have none.
    """
    kit = kit_file(_read_content(path), path)
    return None if kit is None else own_references(kit.captions, path)


def _read_content(path: Path) -> Any:
    """The JSON of a file, its lines of JSON, or the rows of its table as objects."""
    refuse_other_tables(path)
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        lines = enumerate(read_text(path, "JSON lines").split("\n"), start=1)
        return [parse_json(line, f"Line {number} of {path}") for number, line in lines if line.strip()]
    if suffix not in _DELIMITERS:
        return read_json(path)
    text = StringIO(read_text(path, "CSV"), newline="")
    reader = csv.DictReader(text, restval="", strict=True, delimiter=_DELIMITERS[suffix])
    try:
        columns = reader.fieldnames or ()
        missing = [name for name in ("image", "caption") if name not in columns]
        if missing and "prediction" not in columns:
            raise DataError(f"{path} has no column {' and no column '.join(missing)}; predictions have both.")
        return list(reader)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} at line {reader.line_num}.") from error


def _table_captions(rows: Sequence[Mapping[str, str]], path: Path) -> dict[str, tuple[str, ...]]:
    """The captions of each photo of a table; those of corrections are named from the table's folder."""
    captions: dict[str, tuple[str, ...]] = {}
    folder = path.parent if rows and tuple(rows[0]) == CORRECTIONS else Path()
    for row in rows:
        name, text = (from_text_cell(row[column]) for column in ("image", "caption"))
        photo = str(folder / name)
        captions[photo] = (*captions.get(photo, ()), text)
    return captions
