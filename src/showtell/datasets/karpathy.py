"""Karpathy's JSON: `dataset_coco.json`, `dataset_flickr8k.json` and `dataset_flickr30k.json`, captions with splits.

Format: caption_datasets.zip of https://cs.stanford.edu/people/karpathy/deepimagesent/. Its split "restval" is the part
of COCO's validation set that everyone trains on, and is read as train. Where COCO's instances files lie beside it, the
boxes are theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from showtell.datasets.coco import read_boxes
from showtell.datasets.image_files import ImageFiles
from showtell.datasets.issues import DatasetIssues, counted
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_name
from showtell.errors import DataError, summarise
from showtell.files import read_json

EXAMPLE = (
    'dataset_mine.json with {"images": [{"filename": "dog.jpg", "split": "train", '
    '"sentences": [{"raw": "A dog runs."}]}]} beside a folder images/'
)

_START = 2**20  # bytes in which the first image of a file stands
_KEYS = (b'"images"', b'"sentences"', b'"split"')
_COCO = ("captions_", "instances_", "person_keypoints_")  # how COCO's own files begin
_MOST_FILES = 50  # a folder with more JSON files than this holds one per image, not datasets


def recognises(path: Path) -> bool:
    """Whether this is a JSON file with "sentences" and a "split" for each image, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read the Karpathy file of a folder, or one such file.

    Images are looked for by `filepath` and `filename`, then by `filename`, in the folder, in its `images/` and in the
    usual folders of COCO and Flickr. An image's id is its `cocoid`, else its name.
    """
    issues = DatasetIssues(path)
    file, *others = _files(path)
    if others:
        issues.problems.append(
            f"{path} holds several Karpathy files ({summarise(map(issues.shown, [file, *others]))}); "
            "name one of them, or move the others out."
        )
    records: list[CaptionRecord] = []
    try:
        content = read_json(file, _without_tokens)
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, list):
            raise DataError(f'{file} should be a JSON object with a list "images".')
    except DataError as error:
        issues.problems.append(str(error))
        return issues.dataset("karpathy", records)
    records.extend(_records(file, images, issues))
    name = content.get("dataset")
    restval = sum(isinstance(image, dict) and image.get("split") == "restval" for image in images)
    return replace(
        issues.dataset("karpathy", records),
        name=name if isinstance(name, str) else "",
        restval=restval,
    )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" and _has_keys(path) else []
    files = [file for folder in (path, path / "annotations") for file in sorted(folder.glob("*.json"))]
    files = [file for file in files if not file.name.startswith((*_COCO, "."))]
    return [file for file in files if _has_keys(file)] if len(files) <= _MOST_FILES else []


def _has_keys(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            start = stream.read(_START)
    except OSError:
        return False
    return all(key in start for key in _KEYS)


def _without_tokens(entry: dict[str, Any]) -> dict[str, Any]:
    """A sentence without its words, which are half of the file and which nothing here needs beside the text."""
    if "raw" in entry:
        entry.pop("tokens", None)
    return entry


# --- the images ---


def _records(file: Path, images: list[Any], issues: DatasetIssues) -> Iterator[CaptionRecord]:
    shown = issues.shown(file)
    boxes = _boxes(file, issues)
    files = ImageFiles(_image_folders(file))
    unusable, splitless, wordless, empty = [], [], [], []
    for place, image in enumerate(images, start=1):
        names = _names(image) if isinstance(image, dict) else []
        sentences = image.get("sentences") if names else None
        if not isinstance(sentences, list):
            unusable.append(place)
            continue
        image_id = str(image["cocoid"]) if type(image.get("cocoid")) is int else names[0]
        split = image.get("split")
        if not isinstance(split, str) or not split.strip():
            splitless.append(image_id)
            continue
        captions = [_caption(sentence) for sentence in sentences]
        if None in captions:
            wordless.append(image_id)
        if any(caption is not None and not caption.strip() for caption in captions):
            empty.append(image_id)
        path = files.find(names)
        if path is not None:
            yield CaptionRecord(
                image_id,
                path,
                "train" if split == "restval" else split_name(split),
                tuple(caption for caption in captions if caption and caption.strip()),
                None if boxes is None else tuple(boxes.get(image_id, ())),
            )
    files.report(issues, shown)
    if unusable:
        issues.problems.append(
            f'{shown} has {counted(len(unusable), "entry", "entries")} of "images" without a "filename" or a list '
            f'"sentences": number {summarise(unusable)}.'
        )
    if splitless:
        issues.problems.append(f"{shown} gives {counted(len(splitless), 'image')} no split: {summarise(splitless)}.")
    if wordless:
        issues.problems.append(
            f'{shown} has sentences that are neither a text "raw" nor a list of texts "tokens": '
            f"of image {summarise(wordless)}."
        )
    if empty:
        issues.warnings.append(f"{shown} has empty captions, left out: of image {summarise(empty)}.")


def _names(image: dict[str, Any]) -> list[str]:
    """The names that an image may go by, with its folder first; none if it has no name."""
    name, folder = image.get("filename"), image.get("filepath")
    if not isinstance(name, str) or not name:
        return []
    name = name.replace("\\", "/")
    folder = folder.replace("\\", "/").rstrip("/") if isinstance(folder, str) else ""
    return [f"{folder}/{name}", name] if folder else [name]


def _caption(sentence: Any) -> str | None:
    """The text of a sentence, else its words parted by spaces; None where there is neither."""
    if not isinstance(sentence, dict):
        return None
    text, words = sentence.get("raw"), sentence.get("tokens")
    if isinstance(text, str):
        return text
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return " ".join(words)
    return None


def _image_folders(file: Path) -> list[Path]:
    root = file.parent.parent if file.parent.name == "annotations" else file.parent
    usual = ("images", "Images", "train2014", "val2014", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images")
    return list(dict.fromkeys([root, *(root / name for name in usual), file.parent]))


def _boxes(file: Path, issues: DatasetIssues) -> dict[str, list[Box]] | None:
    """The boxes of COCO's instances files beside the file, by image id; None where there are none."""
    folders = dict.fromkeys((file.parent, file.parent / "annotations"))
    found: dict[str, list[Box]] | None = None
    for instances in [path for folder in folders for path in sorted(folder.glob("instances_*.json"))]:
        read = read_boxes(instances, issues)
        if read is not None:
            found = {} if found is None else found
            for image_id, boxes in read.items():
                found.setdefault(image_id, []).extend(boxes)
    return found
