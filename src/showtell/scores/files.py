"""Reads references and document frequencies from files and datasets, as `score` and `evaluate` are given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from showtell.datasets import read_dataset
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError, UsageError, summarise
from showtell.files import read_json
from showtell.scores.base import tokenize
from showtell.scores.captions import read_references
from showtell.scores.facts import ImageFacts, image_facts
from showtell.scores.ngrams import DocumentFrequency


@dataclass(frozen=True)
class ScoredImages:
    """The images that are scored, and the captions that a model may have been trained on."""

    facts: dict[str, ImageFacts]  # by image id
    training: tuple[str, ...] | None = None  # captions of the train split; None where there is none
    files: Mapping[str, str] = field(default_factory=dict)  # path or name of the photo by image id, where it is known


def read_scored_images(path: Path, split: str, limit: int | None = None) -> ScoredImages:
    """References from a JSON file, or from a split of a dataset with what that knows beside them.

    Args:
        path: COCO captions JSON, JSON of {id: [texts]}, or a dataset.
        split: of a dataset.
        limit: at most this many images of a dataset, the same each time.

    Raises:
        DataError: it cannot be read, or has no captions.
        UsageError: a limit for a JSON file.
    """
    content = _read_captions(path)
    if content is not None:
        if limit is not None:
            raise UsageError(
                f"--limit chooses images of a dataset, and {path} is a file of captions; score what both have with "
                "--common."
            )
        facts = {image: ImageFacts(texts) for image, texts in read_references(content).items()}
        return ScoredImages(facts, files=_file_names(content))
    dataset = _read_dataset(path)
    facts = image_facts(dataset, dataset.limited(limit).split(split))
    return ScoredImages(facts, training_captions(dataset), {image: str(one.path) for image, one in facts.items()})


def training_captions(dataset: CaptionDataset) -> tuple[str, ...] | None:
    """The captions of the train split of a dataset; None where it has none."""
    return tuple(text for record in dataset.records if record.split == "train" for text in record.captions) or None


def read_document_frequency(path: Path) -> DocumentFrequency:
    """Document frequencies from a file of them, or counted in captions.

    Args:
        path: JSON of document frequencies, gzipped or not; references as JSON; or a dataset, whose train split counts
            where it has one.

    Raises:
        DataError: it cannot be read, or has no captions.
    """
    if path.suffix == ".gz" and path.is_file():
        return DocumentFrequency.load(path)
    if path.suffix == ".json" and path.is_file():
        content = read_json(path)
        if isinstance(content, dict) and "document_frequency" in content:
            return DocumentFrequency.load(path)
    content, source = _read_captions(path), path.name
    if content is not None:
        texts = read_references(content)
    else:
        dataset = _read_dataset(path)
        train = [record for record in dataset.records if record.split == "train" and record.captions]
        texts = {record.image_id: record.captions for record in train or dataset.records if record.captions}
        source += "/train" if train else ""
    if not texts:
        raise DataError(f"{path} has no captions to count document frequencies in.")
    return DocumentFrequency.of((list(map(tokenize, captions)) for captions in texts.values()), source)


def _read_captions(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file that holds references and nothing else; None for a dataset."""
    if path.suffix != ".json" or not path.is_file():
        return None
    content = read_json(path)
    if not isinstance(content, dict):
        return None
    if isinstance(content.get("images"), list) and not isinstance(content.get("annotations"), list):
        return None
    return content


def _file_names(content: dict[str, Any]) -> dict[str, str]:
    """The name of the photo of each image of a COCO captions dictionary, by image id."""
    images = content.get("images", []) if isinstance(content.get("annotations"), list) else []
    return {str(image["id"]): image["file_name"] for image in images if isinstance(image.get("file_name"), str)}


def _read_dataset(path: Path) -> CaptionDataset:
    """A dataset, whose image files may be missing: scoring needs none."""
    dataset = read_dataset(path)
    if not dataset.records:
        raise DataError(f"{path} has no captions to score against: {summarise(dataset.problems, 1)}")
    return dataset
