"""Predictions, references, objects and document frequencies from files and datasets, for the verbs."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

from showtell.datasets import read_dataset
from showtell.datasets.coco import read_instances
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError, summarise
from showtell.files import parse_json, read_json, read_text
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.base import tokenize
from showtell.scores.captions import read_predictions, read_references
from showtell.scores.facts import ImageFacts, image_facts
from showtell.scores.ngrams import DocumentFrequency

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_RESULT = {"image_id", "caption"}  # the keys of an entry of COCO results


@dataclass(frozen=True)
class ScoredImages:
    """The images that are scored, and the captions that a model may have been trained on."""

    facts: dict[str, ImageFacts]  # by image id
    training: tuple[str, ...] | None = None  # captions of the train split; None without one
    files: Mapping[str, str] = field(default_factory=dict)  # path or name of the photo by image id, where it is known


def read_scored_images(path: Path, split: str) -> ScoredImages:
    """References from COCO captions JSON or JSON of {id: [texts]}, or a split of a dataset with what that knows.

    Raises:
        DataError: it cannot be read, or has no captions.
    """
    content = _read_captions(path)
    if content is None:
        dataset = _read_dataset(path)
        facts = image_facts(dataset, dataset.split(split))
        return ScoredImages(
            facts, training_captions(dataset), {image: str(known.path) for image, known in facts.items()}
        )
    facts = {image: ImageFacts(texts) for image, texts in read_references(content).items()}
    images = content.get("images", []) if isinstance(content.get("annotations"), list) else []
    return ScoredImages(facts, files={str(image["id"]): image["file_name"] for image in images if "file_name" in image})


def training_captions(dataset: CaptionDataset) -> tuple[str, ...] | None:
    """The captions of the train split of a dataset; None where it has none."""
    return tuple(text for record in dataset.records if record.split == "train" for text in record.captions) or None


def read_document_frequency(path: Path) -> DocumentFrequency:
    """Document frequencies from a JSON file of them, gzipped or not, or counted in captions.

    Captions are references as JSON, or a dataset, whose train split counts where it has one.

    Raises:
        DataError: it cannot be read, or has no captions.
    """
    content, source = _read_captions(path), path.name
    if path.suffix == ".gz" or (content is not None and "document_frequency" in content):
        return DocumentFrequency.load(path)
    if content is not None:
        texts = list(read_references(content).values())
    else:
        dataset = _read_dataset(path)
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


def _read_dataset(path: Path) -> CaptionDataset:
    """A dataset, whose image files may be missing: scoring needs none."""
    dataset = read_dataset(path)
    if not dataset.records:
        raise DataError(f"{path} has no captions to score against: {summarise(dataset.problems, 1)}")
    return dataset


def read_prediction_file(path: Path, images: ScoredImages) -> tuple[dict[str, str], list[str]]:
    """Image id to caption, the first where a photo has several, and sentences on how the file was read.

    Photos are matched to images by one kind of name: the kind of `photo_names` that matches most of them. Those that
    match nothing keep their names as ids.

    Args:
        path: JSON of {id: text}; or entries of `image_id` and `caption` (COCO results), or of `image` and `captions` or
            `caption` (`showtell caption`), as JSON, JSON lines or CSV.
        images: what the photos are matched to.

    Raises:
        DataError: the file cannot be read or has another form, none of its photos matches, or two match one image.
    """
    content = _read_entries(path)
    if not isinstance(content, list) or not any(isinstance(entry, Mapping) and "image" in entry for entry in content):
        return read_predictions(content), []
    captions: dict[str, str] = {}
    failed = []
    for number, entry in enumerate(content):
        name, text = _read_entry(entry, f"Entry {number} of {path}")
        if text is None:
            failed.append(name)
        elif name not in captions:
            captions[name] = text
        elif path.suffix.lower() not in _DELIMITERS:  # a table has a row for each caption, the most likely first
            raise DataError(f"{path} has captions of {name} twice; keep one of them.")
    matched, notes = _match(captions, images, path)
    if failed:
        notes.append(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    return matched, notes


def _read_entries(path: Path) -> Any:
    """The content of a file of predictions in any of its forms; of a table, its rows."""
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
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error} at line {reader.line_num}.") from error
    if "caption" not in columns or not {"image", "image_id"} & set(columns):
        raise DataError(f"{path} has no column caption, or neither image nor image_id; predictions have both.")
    return rows


def _read_entry(entry: Any, where: str) -> tuple[str, str | None]:
    """The name of a photo and its first caption; None if the entry has an error instead."""
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
    names = {image: [image, *filter(None, [images.files.get(image)])] for image in images.facts}
    image_ids, kind = match_photos(map(Path, captions), images_by_name(names))
    if kind is None:
        raise DataError(
            f"{path} has captions of {summarise(captions, 3) or 'no photo'}, and none of them is one of the images to "
            f"score ({summarise(images.facts, 3)}; --split chooses others): photos are matched by path, file name, "
            "file name without suffix, or the number at its end."
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
    return matched, [f"Photos of {path} are matched to images by {kind}: {len(image_ids)} of {len(captions)}."]


def with_objects(facts: Mapping[str, ImageFacts], path: Path) -> tuple[dict[str, ImageFacts], list[str]]:
    """Images with the objects that COCO's instances name, and sentences on entries that were left out.

    Images that the file does not list are left as they are.

    Raises:
        DataError: the file cannot be read, or lists none of the images.
    """
    objects, categories, notes = read_instances(path)
    if objects.keys().isdisjoint(facts):
        raise DataError(
            f"{path} lists none of the images ({summarise(facts, 3)}) but {summarise(objects, 3)}; give the instances "
            "of the same images."
        )
    return {
        image: replace(known, objects=objects[image], categories=frozenset(categories)) if image in objects else known
        for image, known in facts.items()
    }, notes
