"""Predictions, references, objects and document frequencies from files and datasets, for the verbs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets import read_dataset
from showtell.datasets.coco import read_instances
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError, notify, summarise
from showtell.files import parse_json, read_json, read_text
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.base import tokenize
from showtell.scores.captions import CAPTION_KEYS, IMAGE_KEYS, read_predictions, read_references
from showtell.scores.diagnostics import without_special_tokens
from showtell.scores.facts import ImageFacts, image_facts
from showtell.scores.ngrams import DocumentFrequency

_RESULT = {"image_id", "caption"}  # the keys of an entry of COCO results
_NO_SPACE = re.compile(r"\S")


@dataclass(frozen=True)
class ScoredImages:
    """The images that are scored, and the captions that a model may have been trained on."""

    facts: dict[str, ImageFacts]  # by image id
    training: tuple[str, ...] | None = None  # captions of the train split; None without one
    files: Mapping[str, str] = field(default_factory=dict)  # path or name of the photo by image id, where it is known


def read_scored_images(path: Path, split: str) -> ScoredImages:
    """References as COCO captions, JSON of {id: [texts]}, or a split with what its dataset knows; or a DataError."""
    content = _read_captions(path)
    if content is None:
        dataset = read_dataset(path)  # whose image files may be missing: scoring needs none
        facts = image_facts(dataset, dataset.split(split))
        return ScoredImages(
            facts, training_captions(dataset), {image: str(known.path) for image, known in facts.items()}
        )
    facts = {image: ImageFacts(texts) for image, texts in read_references(content, str(path)).items()}
    images = content.get("images", []) if isinstance(content.get("annotations"), list) else []
    return ScoredImages(facts, files={str(image["id"]): image["file_name"] for image in images if "file_name" in image})


def training_captions(dataset: CaptionDataset) -> tuple[str, ...] | None:
    """The captions of the train split of a dataset; None where it has none."""
    return tuple(text for record in dataset.records if record.split == "train" for text in record.captions) or None


def read_document_frequency(path: Path) -> DocumentFrequency:
    """Document frequencies from a JSON file of them, or counted in captions.

    Captions are references as JSON, or a dataset, whose train split counts where it has one.

    Raises:
        DataError: it cannot be read, or has no captions.
    """
    content, source = _read_captions(path), path.name
    if content is not None and "document_frequency" in content:
        return DocumentFrequency.load(path)
    if content is not None:
        texts = list(read_references(content, str(path)).values())
    else:
        dataset = read_dataset(path)
        train = [record.captions for record in dataset.records if record.split == "train" and record.captions]
        texts = train or [record.captions for record in dataset.records if record.captions]
        source += "/train" if train else ""
    if not texts:
        raise DataError(f"{path} has no captions to count document frequencies in.")
    return DocumentFrequency.of((map(tokenize, captions) for captions in texts), source)


def _read_captions(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file that holds references and nothing else; None for a dataset."""
    content = read_json(path) if path.suffix == ".json" and path.is_file() else None
    if isinstance(content, list) and any(isinstance(one, dict) and one.keys() == _RESULT for one in content[:1]):
        raise DataError(
            f"{path} is a list of predictions; references are JSON of {{id: [texts]}}, COCO captions JSON or a dataset."
        )
    if not isinstance(content, dict):
        return None
    is_dataset = isinstance(content.get("images"), list) and not isinstance(content.get("annotations"), list)
    return None if is_dataset else content


def read_prediction_file(
    path: Path, images: ScoredImages, *, keep_first: bool = False, strip_tokens: bool = False
) -> dict[str, str]:
    """Image id to caption, the most likely where an entry has several.

    What names no image by its id is matched by one kind of name: the kind of `photo_names` that matches most of them.
    Names that match nothing are kept as ids.

    Args:
        path: {id: text}, COCO results or other entries of an image and a caption, or what `showtell caption` writes; as
            JSON, JSON objects one after another, or a table.
        images: what the names are matched to.
        keep_first: of several entries of an image take the first.
        strip_tokens: remove special tokens such as <start>.

    Raises:
        DataError: the file cannot be read or has another form, no name matches, or two match one image.
    """
    content = _read_table(path) if path.suffix.lower() in (".csv", ".tsv") else _read_values(path)
    captions = read_predictions(content, str(path), keep_first=keep_first, bare_texts=False)
    failed = [str(entry.get("image")) for entry in content if isinstance(entry, Mapping) and "error" in entry]
    if failed:
        notify(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    matched = _match(captions, images, path)
    return {image: without_special_tokens(text) for image, text in matched.items()} if strip_tokens else matched


def _read_values(path: Path) -> Any:
    """The content of a JSON file, or a list of its values where several stand one after another, as in JSON lines."""
    text, decoder = read_text(path, "JSON"), json.JSONDecoder()
    values: list[Any] = []
    end = 0
    while following := _NO_SPACE.search(text, end):
        start = following.start()
        try:
            end = decoder.raw_decode(text, start)[1]
        except (ValueError, RecursionError):
            end = len(text)  # `parse_json` says what is wrong
        values.append(parse_json(text[start:end], f"Entry {len(values)} of {path}" if values else str(path)))
    return values[0] if len(values) == 1 else values


def _read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    text = read_text(path, "CSV")
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(StringIO(text, newline=""), restval="", strict=True, delimiter=delimiter)
    try:
        columns = reader.fieldnames or ()
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} at line {reader.line_num}.") from error
    for keys in (IMAGE_KEYS, CAPTION_KEYS):
        if set(keys).isdisjoint(columns):
            raise DataError(f"{path} has no column {' or '.join(keys)}, but {', '.join(columns) or 'none'}.")
    return rows


def _match(captions: Mapping[str, str], images: ScoredImages, path: Path) -> dict[str, str]:
    """The captions by image id."""
    if not captions:
        raise DataError(f"{path} has no captions.")
    if captions.keys() <= images.facts.keys():
        return dict(captions)
    names = {image: [image, *filter(None, [images.files.get(image)])] for image in images.facts}
    image_ids, kind = match_photos(map(Path, captions), images_by_name(names))
    if kind is None:
        raise DataError(
            f"{path} has captions of {summarise(captions, 3)}, and none of them is one of the images to score "
            f"({summarise(images.facts, 3)}; --split chooses others): they are matched by id, path, file name, file "
            "name without suffix, or the number at its end."
        )
    matched: dict[str, str] = {}
    for name, text in captions.items():
        image = image_ids.get(Path(name), name)
        if image in matched:
            photos = [name for name in captions if image_ids.get(Path(name), name) == image]
            raise DataError(
                f"By {kind}, {path} has captions of more than one photo for image {image} ({summarise(photos, 2)})."
            )
        matched[image] = text
    if matched.keys() != captions.keys():
        notify(f"Photos of {path} are matched to images by {kind}: {len(image_ids)} of {len(captions)}.")
    return matched


def with_objects(facts: Mapping[str, ImageFacts], path: Path) -> dict[str, ImageFacts]:
    """Images with the objects that COCO's instances name; where no images are given, all that the file lists.

    Images that the file does not list are left as they are.

    Raises:
        DataError: the file cannot be read, or lists none of the images.
    """
    objects, categories, notes = read_instances(path)
    for note in notes:
        notify(note)
    facts = facts or dict.fromkeys(objects, ImageFacts())
    if objects.keys().isdisjoint(facts):
        raise DataError(
            f"{path} lists none of the images ({summarise(facts, 3)}) but {summarise(objects, 3)}; give the instances "
            "of the same images."
        )
    return {
        image: replace(known, objects=objects[image], categories=frozenset(categories)) if image in objects else known
        for image, known in facts.items()
    }
