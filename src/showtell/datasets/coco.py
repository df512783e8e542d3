"""COCO captions: `captions_*.json` with the images they list, and object boxes from `instances_*.json`.

Format: https://cocodataset.org/#format-data, as released for 2014 and 2017. Scenes are written in it too, with
one key more: `grounding`, the boxes that words of a caption name.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from showtell.datasets.entries import Entry, make_records
from showtell.datasets.image_files import MAX_FILES, list_files, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.splits import split_name, split_of_file, split_rank
from showtell.errors import DataError
from showtell.files import read_bytes, read_json
from showtell.text.caption_columns import FLAGS, is_left_out

EXAMPLE = (
    'annotations/captions_train.json with {"images": [{"id": 1, "file_name": "dog.jpg"}], '
    '"annotations": [{"id": 1, "image_id": 1, "caption": "A dog runs."}]} beside a folder images/'
)

_CAPTIONS = re.compile(r"captions_(?P<split>.+?)(?P<year>20\d\d)?")
_KEYS = (rb"\A(\xef\xbb\xbf)?\s*\{", rb'"images"\s*:\s*\[', rb'"annotations"\s*:\s*\[', rb'"caption"\s*:')
_NAME_OF_2014 = re.compile(r"COCO_[a-z]+20\d\d_(\d{12}\.jpg)")  # the names of 2017 are the number alone

# The outlines of objects are nine tenths of an instances file and not used here: cut out of the bytes they take a
# second or two, parsed they would take gigabytes.
_OUTLINE = re.compile(rb'"segmentation"\s*:\s*\[[\[\]\d\s.,eE+-]*\]')


def recognises(path: Path) -> bool:
    """Whether this is a COCO file of captions, or a folder with some, in `annotations/` or itself."""
    return bool(_caption_files(path))


def read(path: Path) -> CaptionDataset:
    """Read a captions file, or all of a folder, each as the split of its name; images lie in `_image_folders`."""
    issues, files = DatasetIssues(path), _caption_files(path)
    matches = [match for file in files if (match := _CAPTIONS.fullmatch(file.stem))]
    if len({match["year"] for match in matches} - {None}) > 1:
        issues.problems.append(
            f"{path} holds the captions of several years, which share photos across splits; name one of the files "
            f"({', '.join(map(issues.display, files))}), or move the others out."
        )
        files = []
    return issues.dataset("coco", issues.collect(files, _read_captions))


def _caption_files(path: Path) -> list[Path]:
    """The captions files of a dataset: by the name that COCO gives them, else by what is in them."""
    files = list_files(path, (".json",), ("annotations", ""))
    named = [file for file in files if _CAPTIONS.fullmatch(file.stem)]
    if not named and len(files) <= MAX_FILES:
        named = [file for file in files if _holds_captions(file)]
    return sorted(named, key=lambda file: split_rank(_split_of(file) or ""))


def _split_of(file: Path) -> str | None:
    match = _CAPTIONS.fullmatch(file.stem)
    return split_name(match["split"]) if match else split_of_file(file)


def _holds_captions(file: Path) -> bool:
    """Whether a file has the keys of COCO captions. A file of 100 MB is searched, not parsed."""
    content = read_bytes(file)
    return all(re.search(pattern, content) for pattern in _KEYS)


def _read_captions(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    content = _sections(file, read_json(file), ("images", "annotations"))
    shown, split = issues.display(file), _split_of(file)
    boxes = read_boxes(file.with_name(file.name.replace("captions", "instances")), issues)
    has_groundings = any(isinstance(entry, dict) and entry.get("grounding") for entry in content["annotations"])
    images: dict[str, Entry] = {}
    unusable, ambiguous = [], []
    for number, image in enumerate(content["images"], start=1):
        image_id, names = _id_of(image, "id"), _file_names(image)
        if image_id is None or not names:
            unusable.append(number)
        elif image_id not in images:
            own = None if boxes is None else tuple(boxes.get(image_id, ()))
            splits = {split: None} if split else {}
            images[image_id] = Entry(names, [], splits, {image_id: None}, own, () if has_groundings else None)
        elif images[image_id].names != names:  # the same image twice is harmless
            ambiguous.append(image_id)
    own_id = "give every image an id of its own"
    issues.problem(ambiguous, "id stands|ids stand", f"for different images in {shown}", own_id)
    needs = 'each needs an "id" and a "file_name"'
    issues.problem(unusable, 'entry of "images"|entries of "images"', f"in {shown} cannot be used", needs)
    unusable, invalid, flagged = [], [], []
    skipped: dict[str, None] = {}
    for number, annotation in enumerate(content["annotations"], start=1):
        image_id = _id_of(annotation, "image_id")
        if image_id not in images or not isinstance(annotation.get("caption"), str):
            unusable.append(number)
            continue
        entry = images[image_id]
        if is_left_out(annotation):
            flagged.append(number)
            skipped[image_id] = None
            continue
        entry.captions.append(annotation["caption"])
        if entry.groundings is not None:
            groundings = _groundings(annotation, entry.boxes or ())
            invalid += [image_id] if groundings is None else []
            entry.groundings = (*entry.groundings, groundings or ())
    needs = 'each needs the "image_id" of a listed image and a text as "caption"'
    issues.problem(unusable, 'entry of "annotations"|entries of "annotations"', f"in {shown} cannot be used", needs)
    remarks = f"of {shown} that its authors marked ({', '.join(FLAGS)}), left out as in their evaluation"
    issues.warning(flagged, "caption|captions", remarks)
    without = {image_id for image_id in skipped if not images[image_id].captions}
    issues.warning(sorted(without), "image of|images of", f"{shown} without other captions than these, left out")
    entries = [entry for image_id, entry in images.items() if image_id not in without]
    issues.warning(invalid, "caption|captions", f'in {shown} with a "grounding" that does not fit, left out, of image')
    names_lists = "files called captions_train.json, captions_val.json and captions_test.json"
    return make_records(file, entries, issues, _image_folders(file), names_lists)


def _sections(file: Path, content: Any, names: Iterable[str]) -> dict[str, list[Any]]:
    """The named lists of a COCO file; a DataError if it is no JSON object, or one of the lists is not there."""
    sections = content if isinstance(content, dict) else {}
    if missing := [name for name in names if not isinstance(sections.get(name), list)]:
        raise DataError(
            f"{file} is not a COCO file: it should be an object with the lists {' and '.join(names)}, "
            f"and has no {' and no '.join(missing)}."
        )
    return sections


def _id_of(entry: Any, key: str) -> str | None:
    """An id as text; None where there is none. COCO's are integers, those of others may be text."""
    value = entry.get(key) if isinstance(entry, dict) else None
    if type(value) is int:  # isinstance(True, int) is true
        return str(value)
    return value if isinstance(value, str) and value else None


def _image_folders(file: Path) -> list[Path]:
    """Folders where the images of a captions file may lie, the most likely first."""
    root = root_of(file)
    names = filter(None, (file.stem.removeprefix("captions_"), _split_of(file)))  # train2014, train
    own = [folder / name for name in names for folder in (root, root / "images")]
    return [*own, root / "images", root, file.parent]


def _file_names(entry: Any) -> list[str]:
    """Possible file names of an image, none where it has none. COCO's photos have other names since 2017."""
    name = entry.get("file_name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        return []
    number = _NAME_OF_2014.fullmatch(name)
    return [name.replace("\\", "/"), *(number.groups() if number else ())]


def _groundings(annotation: dict[str, Any], boxes: Iterable[Box]) -> tuple[Grounding, ...] | None:
    """The groundings of a caption; None where words or boxes do not exist."""
    index, words, known = operator.index, len(annotation["caption"].split()), {box.id for box in boxes}
    try:
        given = annotation.get("grounding") or ()
        spans = tuple(Grounding(index(span["first"]), index(span["end"]), tuple(span["boxes"])) for span in given)
        fits = all(0 <= span.first < span.end <= words and known.issuperset(span.boxes) for span in spans)
    except (KeyError, TypeError):
        return None
    return spans if fits else None


def read_boxes(file: Path, issues: DatasetIssues) -> dict[str, list[Box]] | None:
    """The boxes of each image by its id; None where there is no instances file, or none that can be read."""
    if "instances" not in file.name or not file.is_file():
        return None
    try:
        return _boxes(file, _sections(file, _without_outlines(file), ("annotations", "categories")), issues)
    except DataError as error:
        issues.warnings.append(f"No boxes were read: {error}")
        return None


def _boxes(file: Path, content: dict[str, list[Any]], issues: DatasetIssues) -> dict[str, list[Box]]:
    """The boxes of the content of an instances file by image; those that cannot be used are reported."""
    boxes: dict[str, list[Box]] = {}
    unusable = []
    categories = {
        entry["id"]: str(entry.get("name", entry["id"]))
        for entry in content["categories"]
        if isinstance(entry, dict) and isinstance(entry.get("id"), int)
    }
    for number, entry in enumerate(content["annotations"], start=1):
        image_id = _id_of(entry, "image_id")
        try:
            x, y, width, height = map(float, entry["bbox"])
            box = Box(operator.index(entry["id"]), x, y, width, height, categories[entry["category_id"]])
        except (KeyError, OverflowError, TypeError, ValueError):
            image_id = None
        if image_id is None or not math.isfinite(x + y + width + height):
            unusable.append(number)
        else:
            boxes.setdefault(image_id, []).append(box)
    needs = 'each needs an "id", an "image_id", a "bbox" of four numbers and a listed category'
    without = f"in {issues.display(file)} left out"
    issues.warning(unusable, 'entry of "annotations"|entries of "annotations"', without, needs)
    return boxes


def _without_outlines(file: Path) -> Any:
    try:
        return json.loads(_OUTLINE.sub(b'"segmentation":null', read_bytes(file)))
    except (RecursionError, ValueError):
        return read_json(file)  # whose message has the line in the whole file
