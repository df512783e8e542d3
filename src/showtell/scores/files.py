"""Predictions, references, objects and document frequencies from files and datasets, for the verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from showtell.datasets import flickr, jsonl, open_dataset, table
from showtell.datasets.issues import counted
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError, notify, summarise
from showtell.files import read_json
from showtell.images.photo_files import images_by_name, match_photos
from showtell.scores.base import tokenize
from showtell.scores.captions import read_predictions, read_references
from showtell.scores.diagnostics import without_special_tokens
from showtell.scores.facts import ImageFacts, image_facts
from showtell.scores.ngrams import DocumentFrequency
from showtell.text.caption_columns import is_left_out


@dataclass(frozen=True)
class ScoredImages:
    """The images that are scored, and the captions that a model may have been trained on."""

    facts: dict[str, ImageFacts]  # by image id
    training: tuple[str, ...] | None = None  # captions of the train split; None without one
    files: Mapping[str, str] = field(default_factory=dict)  # path or name of the photo by image id, where it is known
    drawn: frozenset[str] | None = None  # where the references give no splits, those of the split that is drawn

    def chosen_by(self, predicted: Iterable[str], source: str) -> ScoredImages:
        """The images of the drawn split if predictions are of them alone, else all of them, which is told."""
        if self.drawn is None:
            return self
        if self.drawn.issuperset(predicted):
            return replace(self, facts={image: self.facts[image] for image in self.drawn}, drawn=None)
        notify(f"{source} has no splits, so all of its {len(self.facts)} images are scored.")
        return replace(self, training=None, drawn=None)


def read_scored_images(path: Path, split: str) -> ScoredImages:
    """References: COCO captions, JSON of {id: [texts]}, entries of images, or a dataset; photos may be missing."""
    content = _read_captions(path)
    if content is None:
        dataset = open_dataset(path, with_photos=False)
        drawn = None
        if dataset.has_drawn_splits:
            drawn = frozenset(record.image_id for record in dataset.records if record.split == split)
        facts = image_facts(dataset[split] if drawn is None else dataset)
        files = {image: str(known.path) for image, known in facts.items()}
        return ScoredImages(facts, training_captions(dataset), files, drawn)
    facts = {image: ImageFacts(texts) for image, texts in read_references(content, str(path)).items()}
    is_coco = isinstance(content.get("annotations"), list)
    if is_coco and (flagged := sum(map(is_left_out, content["annotations"]))):
        notify(f"{path} has {flagged} captions that its authors rejected or wrote beforehand, left out as they do.")
    images = content.get("images", []) if is_coco else []
    return ScoredImages(facts, files={str(image["id"]): image["file_name"] for image in images if "file_name" in image})


def training_captions(dataset: CaptionDataset) -> tuple[str, ...] | None:
    """The captions of the train split of a dataset; None where it has none."""
    return tuple(text for record in dataset.records if record.split == "train" for text in record.captions) or None


def read_document_frequency(path: Path) -> DocumentFrequency:
    """Document frequencies from a JSON file, or counted in JSON references or in a dataset (its train split if any)."""
    content, source = _read_captions(path), path.name
    if content is not None and "document_frequency" in content:
        return DocumentFrequency.load(path)
    if content is not None:
        texts = list(read_references(content, str(path)).values())
    else:
        dataset = open_dataset(path, with_photos=False)
        train = [record.captions for record in dataset.records if record.split == "train" and record.captions]
        texts = train or [record.captions for record in dataset.records if record.captions]
        source += "/train" if train else ""
    if not texts:
        raise DataError(f"{path} has no captions to count document frequencies in.")
    return DocumentFrequency.of((map(tokenize, captions) for captions in texts), source)


def _read_captions(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file that holds references and nothing else; None for a dataset."""
    content = read_json(path) if path.suffix == ".json" and path.is_file() else None
    if not isinstance(content, dict):
        return None
    is_dataset = isinstance(content.get("images"), list) and not isinstance(content.get("annotations"), list)
    return None if is_dataset else content


def read_prediction_file(
    path: Path, images: ScoredImages, *, keep_first: bool = False, strip_tokens: bool = False
) -> dict[str, str]:
    """Image id to caption, from every form that `showtell score` takes; the most likely where an entry has several.

    Names that are no ids are matched by the kind of `photo_names` that matches most; an unmatched name stays an id."""
    content = _predictions_in(path)
    captions = read_predictions(content, str(path), keep_first=keep_first, bare_texts=False)
    failed = [str(entry.get("image")) for entry in content if isinstance(entry, Mapping) and "error" in entry]
    if failed:
        notify(f"{path} has no caption of {len(failed)} of {len(content)} photos: {summarise(failed)}.")
    matched = _match(captions, images, path)
    return {image: without_special_tokens(text) for image, text in matched.items()} if strip_tokens else matched


def _predictions_in(path: Path) -> Any:
    """What `read_predictions` takes, from a table, lines of names and captions, JSON, or the folder of a dataset."""
    if path.is_dir():
        records = open_dataset(path, with_photos=False).records
        return [{"image": str(record.path), "captions": list(record.captions)} for record in records]
    if path.suffix.lower() in table.SUFFIXES:
        content = table.Table.read(path, predicted=True)
        image, captions = content.columns.image, content.columns.captions
        unusable = [number for number, row in content.rows if not row[image].strip()]
        rows = [(row[image], [row[at] for at in captions if row[at] or at == captions[0]]) for _, row in content.rows]
        form, unusable = table.FORM, sorted({*unusable, *content.surplus, *content.short})
    elif path.is_file() and flickr.recognises(path):
        lines = list(flickr.read_lines(path))
        form, unusable = "dog.jpg<TAB>A dog runs", [number for number, cells in lines if cells is None]
        rows = [(cells[0], [cells[1]]) for _, cells in lines if cells]
    else:
        values = [value for _, value in jsonl.read_values(path, str(path))]
        return values[0] if len(values) == 1 and isinstance(values[0], Mapping) else values
    if unusable:
        count = counted(len(unusable), "line")
        raise DataError(f"{count} of {path} cannot be used: {summarise(unusable)}; each is like {form}.")
    return [{"image": image, "caption": texts[0] if len(texts) == 1 else texts} for image, texts in rows]


def _match(captions: Mapping[str, str], images: ScoredImages, path: Path) -> dict[str, str]:
    """The captions by image id."""
    if not captions:
        raise DataError(f"{path} has no captions.")
    if captions.keys() <= images.facts.keys() or captions.keys() >= images.facts.keys():
        return dict(captions)
    known = images_by_name({image: [image, *filter(None, [images.files.get(image)])] for image in images.facts})
    is_known = {name: name in known or Path(name).name in known for name in captions}
    photos = {name: Path(name if is_known[name] else name.strip().replace("\\", "/")) for name in captions}
    starts = [{name: start / photo for name, photo in photos.items()} for start in (Path(), path.parent)]
    tried = [(own, *match_photos(own.values(), known)) for own in starts]
    photos, image_ids, kind = max(tried, key=lambda own: len(own[1]))
    if kind is None:
        raise DataError(
            f"{path} has captions of {summarise(captions, 3)}, and none of them is one of the images to score "
            f"({summarise(images.facts, 3)}; --split chooses others): they are matched by id, path, file name, file "
            "name without suffix, or the number at its end."
        )
    matched: dict[str, str] = {}
    for name, text in captions.items():
        image = image_ids.get(photos[name], name)
        if image in matched:
            several = [name for name in captions if image_ids.get(photos[name], name) == image]
            raise DataError(
                f"By {kind}, {path} has captions of more than one photo for image {image} ({summarise(several, 2)})."
            )
        matched[image] = text
    if matched.keys() != captions.keys():
        notify(f"Photos of {path} are matched to images by {kind}: {len(image_ids)} of {len(captions)}.")
    return matched
