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

from showtell.datasets.coco import ENTRIES, UNUSABLE, read_boxes
from showtell.datasets.image_files import ImageFiles, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord
from showtell.datasets.source_files import MAX_JSON_FILES, as_text, list_files
from showtell.datasets.splits import split_name
from showtell.errors import DataError
from showtell.files import read_bytes, read_json

EXAMPLE = (
    'dataset_mine.json with {"images": [{"filename": "dog.jpg", "split": "train", '
    '"sentences": [{"raw": "A dog runs."}]}]} beside a folder images/'
)

_START = 2**20  # bytes that hold the first image of a file
_KEYS = (b'"images"', b'"sentences"', b'"split"')
_COCO = ("captions_", "instances_", "person_keypoints_")  # how COCO's own files begin


def recognises(path: Path) -> bool:
    """Whether this is a JSON file with "sentences" and a "split" for each image, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read the Karpathy file of a folder, or one such file.

    Images are searched by `filepath` and `filename`, then by `filename`, in the folder, in its `images/` and in the
    folders of COCO and Flickr. An image's id is its `cocoid`, else its name.
    """
    issues = DatasetIssues(path)
    file, *others = _files(path)
    several = "{root} holds several Karpathy files ({file}, {items}); name one of them, or move the others out."
    issues.problem(map(issues.display, others), several, root=str(path), file=issues.display(file))
    try:
        content = read_json(file, _without_tokens)
        images = content.get("images") if isinstance(content, dict) else None
        if not isinstance(images, list):
            raise DataError(f'{file} should be a JSON object with a list "images".')
    except DataError as error:
        issues.problems.append(str(error))
        return issues.dataset("karpathy", [])
    records = list(_records(file, images, issues))
    restval = sum(isinstance(image, dict) and image.get("split") == "restval" for image in images)
    return replace(issues.dataset("karpathy", records), name=str(content.get("dataset") or ""), restval=restval)


def _files(path: Path) -> list[Path]:
    files = list_files(path, (".json",), ("", "annotations"))
    if path.is_dir():
        files = [file for file in files if not file.name.startswith(_COCO)]
    return [file for file in files if _has_keys(file)] if len(files) <= MAX_JSON_FILES else []


def _has_keys(file: Path) -> bool:
    start = read_bytes(file, _START)
    return all(key in start for key in _KEYS)


def _without_tokens(entry: dict[str, Any]) -> dict[str, Any]:
    """A sentence without its tokens, which are half of the file and not used where there is the raw text."""
    if "raw" in entry:
        entry.pop("tokens", None)
    return entry


# --- the images ---


def _records(file: Path, images: list[Any], issues: DatasetIssues) -> Iterator[CaptionRecord]:
    shown = issues.display(file)
    boxes = _boxes(file, issues)
    files = ImageFiles(_image_folders(file))
    unusable, without_split, without_text, empty = [], [], [], []
    for number, image in enumerate(images, start=1):
        names = _names(image) if isinstance(image, dict) else []
        sentences = image.get("sentences") if names else None
        if not isinstance(sentences, list):
            unusable.append(number)
            continue
        image_id = str(image["cocoid"]) if type(image.get("cocoid")) is int else as_text(names[0])
        split = image.get("split")
        if not isinstance(split, str) or not split.strip():
            without_split.append(image_id)
            continue
        captions = [_caption(sentence) for sentence in sentences]
        if None in captions:
            without_text.append(image_id)
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
    lacks = 'a "filename" or a list "sentences"'
    issues.problem(unusable, UNUSABLE, *ENTRIES, file=shown, list="images", lacks=lacks)
    issues.problem(without_split, "{file} gives {count} no split: {items}.", "image", file=shown)
    neither = '{file} has sentences that are neither a text "raw" nor a list of texts "tokens": of image {items}.'
    issues.problem(without_text, neither, file=shown)
    issues.warning(empty, "{file} has empty captions, left out: of image {items}.", file=shown)


def _names(image: dict[str, Any]) -> list[str]:
    """Possible file names of an image, the one with its folder first; none if it has no name."""
    name, folder = image.get("filename"), image.get("filepath")
    if not isinstance(name, str) or not name:
        return []
    name = name.replace("\\", "/")
    folder = folder.replace("\\", "/").rstrip("/") if isinstance(folder, str) else ""
    return [f"{folder}/{name}", name] if folder else [name]


def _caption(sentence: Any) -> str | None:
    """The raw text of a sentence, else its tokens joined by spaces; None without either."""
    if not isinstance(sentence, dict):
        return None
    text, tokens = sentence.get("raw"), sentence.get("tokens")
    if isinstance(text, str):
        return text
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        return " ".join(tokens)
    return None


def _image_folders(file: Path) -> list[Path]:
    root = root_of(file)
    names = ("images", "Images", "train2014", "val2014", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images")
    return list(dict.fromkeys([root, *(root / name for name in names), file.parent]))


def _boxes(file: Path, issues: DatasetIssues) -> dict[str, list[Box]] | None:
    """The boxes of COCO's instances files beside the file, by image id; None where there are none."""
    folders = dict.fromkeys((file.parent, file.parent / "annotations"))
    files = [path for folder in folders for path in sorted(folder.glob("instances_*.json"))]
    parts = [part for part in (read_boxes(file, issues) for file in files) if part is not None]
    boxes: dict[str, list[Box]] = {}
    for part in parts:
        for image_id, own in part.items():
            boxes.setdefault(image_id, []).extend(own)
    return boxes if parts else None
