"""Karpathy's JSON: `dataset_coco.json`, `dataset_flickr8k.json` and `dataset_flickr30k.json`, captions with splits.

Format: caption_datasets.zip of https://cs.stanford.edu/people/karpathy/deepimagesent/. Its split "restval" is the part
of COCO's validation set that everyone trains on, and is read as train. Where COCO's instances files lie beside it, the
boxes are theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from showtell.datasets.coco import read_boxes
from showtell.datasets.entries import Entry, make_records
from showtell.datasets.image_files import MAX_FILES, as_text, list_files, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import Box, CaptionDataset
from showtell.errors import DataError
from showtell.files import read_bytes, read_json

EXAMPLE = (
    'dataset_mine.json with {"images": [{"filename": "dog.jpg", "split": "train", '
    '"sentences": [{"raw": "A dog runs."}]}]} beside a folder images/'
)

_START = 2**20  # bytes that hold the first image of a file
_KEYS = (b'"images"', b'"sentences"', b'"split"')
_COCO = ("captions_", "instances_", "person_keypoints_")  # how COCO's own files begin
_FOLDERS = ("images", "Images", "train2014", "val2014", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images")


def recognises(path: Path) -> bool:
    """Whether this is a JSON file with "sentences" and a "split" for each image, or a folder with one."""
    return bool(_files(path))


def read(path: Path) -> CaptionDataset:
    """Read the Karpathy file of a folder, or one such file; an image's id is its `cocoid`, else its name."""
    issues, files = DatasetIssues(path), _files(path)
    if len(files) > 1:
        issues.problem(map(issues.display, files), "Karpathy file|Karpathy files", f"in {path}", "name one of them")
    try:
        content = read_json(files[0], _without_tokens)
        if not isinstance(content, dict) or not isinstance(content.get("images"), list):
            raise DataError(f'{files[0]} should be a JSON object with a list "images".')
    except DataError as error:
        issues.problems.append(str(error))
        return issues.dataset("karpathy", [])
    entries = _entries(files[0], content["images"], issues)
    root = root_of(files[0])
    folders = [root, *(root / name for name in _FOLDERS), files[0].parent]
    records = make_records(files[0], entries, issues, folders, 'a "split" for each image')
    return issues.dataset("karpathy", records, str(content.get("dataset") or ""))


def _files(path: Path) -> list[Path]:
    files = list_files(path, (".json",), ("", "annotations"))
    if path.is_dir():
        files = [file for file in files if not file.name.startswith(_COCO)]
    starts = {file: read_bytes(file, _START) for file in files} if len(files) <= MAX_FILES else {}
    return [file for file, start in starts.items() if all(key in start for key in _KEYS)]


def _without_tokens(entry: dict[str, Any]) -> dict[str, Any]:
    """A sentence without its tokens, which are half of the file and not used where there is the raw text."""
    if "raw" in entry:
        entry.pop("tokens", None)
    return entry


def _entries(file: Path, images: list[Any], issues: DatasetIssues) -> list[Entry]:
    boxes = _boxes(file, issues)
    entries, unusable = [], []
    for number, image in enumerate(images, start=1):
        try:
            folder, split = str(image.get("filepath") or "").rstrip("/\\"), str(image["split"])
            names = [f"{folder}/{image['filename']}", image["filename"]] if folder else [str(image["filename"])]
            names = [name.replace("\\", "/") for name in names]
            image_id = str(image["cocoid"]) if type(image.get("cocoid")) is int else as_text(names[0])
            captions = [_caption(sentence) for sentence in image["sentences"]]
        except (AttributeError, KeyError, TypeError):
            unusable.append(number)
            continue
        own = None if boxes is None else tuple(boxes.get(image_id, ()))
        entries.append(Entry(names, captions, {split: None} if split.strip() else {}, {image_id: None}, own))
    needs = 'each needs a "filename", a "split" and a list "sentences" with texts "raw" or lists of texts "tokens"'
    sentence = f"in {issues.display(file)} cannot be used"
    issues.problem(unusable, 'entry of "images"|entries of "images"', sentence, needs)
    return entries


def _caption(sentence: dict[str, Any]) -> str:
    """The raw text of a sentence, else its tokens joined by spaces; a KeyError or TypeError if it has neither."""
    return "" + sentence["raw"] if sentence.get("raw") is not None else " ".join(sentence["tokens"])


def _boxes(file: Path, issues: DatasetIssues) -> dict[str, list[Box]] | None:
    """The boxes of COCO's instances files beside the file, by image id; None where there are none."""
    files = [path for below in ("", "annotations/") for path in sorted(file.parent.glob(f"{below}instances_*.json"))]
    boxes: dict[str, list[Box]] = {}
    for instances in files:
        for image_id, own in (read_boxes(instances, issues) or {}).items():
            boxes.setdefault(image_id, []).extend(own)
    return boxes or None
