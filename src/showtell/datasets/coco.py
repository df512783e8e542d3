"""COCO captions: `captions_*.json` with the images they list, and object boxes from `instances_*.json`.

Format: https://cocodataset.org/#format-data, as released for 2014 and 2017. Scenes are written in it too, with
one key more: `grounding`, the boxes that words of a caption name.
"""

from __future__ import annotations

import json
import math
import mmap
import operator
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from showtell.datasets.image_files import ImageFiles, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.source_files import MAX_JSON_FILES, list_files
from showtell.datasets.split_lists import choose_splits
from showtell.datasets.splits import split_name, split_of_file, split_rank
from showtell.errors import DataError
from showtell.files import open_file, read_bytes, read_json

EXAMPLE = (
    'annotations/captions_train.json with {"images": [{"id": 1, "file_name": "dog.jpg"}], '
    '"annotations": [{"id": 1, "image_id": 1, "caption": "A dog runs."}]} beside a folder images/'
)

_REMEDY = "files called captions_train.json, captions_val.json and captions_test.json would choose them"

# An entry of a list that lacks what each should have.
UNUSABLE, ENTRIES = '{file} has {count} of "{list}" without {lacks}: number {items}.', ("entry", "entries")

_CAPTIONS = re.compile(r"captions_(?P<split>.+?)(?P<year>20\d\d)?")

_KEYS = (rb"\A(\xef\xbb\xbf)?\s*\{", rb'"images"\s*:\s*\[', rb'"annotations"\s*:\s*\[', rb'"caption"\s*:')

# The outlines of objects are nine tenths of an instances file and not used here: cut out of the bytes they take a
# second or two, parsed they would take gigabytes.
_OUTLINE = re.compile(rb'"segmentation"\s*:\s*\[[\[\]\d\s.,eE+-]*\]')


def recognises(path: Path) -> bool:
    """Whether this is a COCO file of captions or images, or a folder with captions, in `annotations/` or itself."""
    return bool(_caption_files(path))


def read(path: Path) -> CaptionDataset:
    """Read every captions file of a folder, or one file of captions.

    The split is that of `captions_<split><year>.json`. Images are searched in `<split><year>/`,
    `<split>/`, the same two in `images/`, then `images/` and the folder itself.
    """
    issues = DatasetIssues(path)
    records = issues.collect(_one_release(_caption_files(path), issues), _read_captions)
    _report_repeated_boxes(records, issues)
    return issues.dataset("coco", records)


# --- which files ---


def _caption_files(path: Path) -> list[Path]:
    """The captions files of a dataset: by the name that COCO gives them, else by what is in them."""
    if path.is_file():
        is_named = path.suffix.lower() == ".json" and _CAPTIONS.fullmatch(path.stem)
        return [path] if is_named or _holds_captions(path) else []
    files = list_files(path, (".json",), ("annotations", ""))
    named = [file for file in files if _CAPTIONS.fullmatch(file.stem)]
    if not named and len(files) <= MAX_JSON_FILES:
        named = [file for file in files if _holds_captions(file)]
    return sorted(named, key=lambda file: split_rank(_split_of(file) or ""))


def _split_of(file: Path) -> str | None:
    match = _CAPTIONS.fullmatch(file.stem)
    return split_name(match["split"]) if match else split_of_file(file.stem)


def _holds_captions(file: Path) -> bool:
    """Whether a file has the keys of COCO captions. A file of 100 MB is searched, not parsed."""
    try:
        with open_file(file) as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return all(re.search(pattern, content) for pattern in _KEYS)
    except (DataError, OSError, ValueError):  # ValueError: an empty file cannot be mapped
        return False


def _one_release(files: list[Path], issues: DatasetIssues) -> list[Path]:
    """The files of one release: those of 2014 and 2017 caption the same photos in other splits."""
    years: dict[str, list[Path]] = {}
    for file in files:
        match = _CAPTIONS.fullmatch(file.stem)
        years.setdefault((match and match["year"]) or "", []).append(file)
    dated = sorted(filter(None, years))
    if len(dated) < 2:
        return files
    names = ", ".join(issues.display(file) for year in dated for file in years[year])
    issues.problems.append(
        f"{issues.root} holds the captions of several years, which share photos across splits ({names}); "
        "name one of the files, or move the others out."
    )
    return years.get("", []) + years[dated[0]]


# --- one captions file ---


@dataclass
class _Image:
    """An entry of "images" with its annotations."""

    entry: dict[str, Any]
    captions: list[str] = field(default_factory=list)
    groundings: list[object] = field(default_factory=list)  # of each caption, unchecked; None where it has none


def _read_captions(file: Path, issues: DatasetIssues) -> Iterator[CaptionRecord]:
    content = _sections(file, read_json(file), ("images", "annotations"))
    images = _read_images(file, content["images"], issues)
    _read_annotations(file, content["annotations"], images, issues)

    split = _split_of(file)
    splits = dict.fromkeys(images, split) if split else _choose_splits(file, images, issues)
    boxes = read_boxes(file.with_name(file.name.replace("captions", "instances")), issues)
    has_groundings = any(grounding is not None for image in images.values() for grounding in image.groundings)
    invalid: list[str] = []  # images with groundings that do not fit
    files = ImageFiles(_image_folders(file))
    for image_id, image in images.items():
        own_boxes = None if boxes is None else tuple(boxes.get(image_id, ()))
        image_path = files.find(_file_names(image.entry))
        if image_path is None or image_id not in splits:
            continue
        yield CaptionRecord(
            image_id,
            image_path,
            splits[image_id],
            tuple(image.captions),
            own_boxes,
            _groundings(image_id, image, own_boxes or (), invalid) if has_groundings else None,
        )
    issues.warning(
        invalid,
        '{file} has {count} whose "grounding" names words or boxes that do not exist, left out: of image {items}.',
        "caption",
        file=issues.display(file),
    )
    files.report(issues, issues.display(file))


def _sections(file: Path, content: Any, names: Iterable[str]) -> dict[str, list[Any]]:
    """The named lists of a COCO file.

    Raises:
        DataError: the file is no JSON object, or one of the lists is not there.
    """
    sections = content if isinstance(content, dict) else {}
    missing = [name for name in names if not isinstance(sections.get(name), list)]
    if missing:
        raise DataError(
            f"{file} is not a COCO file: it should be an object with the lists {' and '.join(names)}, "
            f"and has no {' and no '.join(missing)}."
        )
    return sections


def _read_images(file: Path, entries: list[Any], issues: DatasetIssues) -> dict[str, _Image]:
    images: dict[str, _Image] = {}
    unusable, repeated, ambiguous = [], [], []
    for number, entry in enumerate(entries, start=1):
        image_id = _id_of(entry, "id")
        if image_id is None or next(_file_names(entry), None) is None:
            unusable.append(number)
        elif image_id not in images:
            images[image_id] = _Image(entry)
        elif entry.get("file_name") == images[image_id].entry.get("file_name"):
            repeated.append(image_id)
        else:
            ambiguous.append(image_id)
    shown = issues.display(file)
    issues.problem(unusable, UNUSABLE, *ENTRIES, file=shown, list="images", lacks='an "id" or a "file_name"')
    joined = "{count} listed twice in {file}: {items}; the captions were joined."
    issues.warning(repeated, joined, "image is", "images are", file=shown)
    different = "{count} for different images in {file}: {items}; give every image an id of its own."
    issues.problem(ambiguous, different, "id stands", "ids stand", file=shown)
    return images


def _read_annotations(file: Path, entries: list[Any], images: dict[str, _Image], issues: DatasetIssues) -> None:
    unusable, unlisted, empty = [], [], []
    for number, entry in enumerate(entries, start=1):
        image_id = _id_of(entry, "image_id")
        caption = entry.get("caption") if image_id is not None else None
        if image_id is None or not isinstance(caption, str):
            unusable.append(number)
        elif image_id not in images:
            unlisted.append(image_id)
        elif not caption.strip():
            empty.append(image_id)
        else:
            images[image_id].captions.append(caption)
            images[image_id].groundings.append(entry.get("grounding"))
    shown = issues.display(file)
    lacks = 'an "image_id" or a text as "caption"'
    issues.problem(unusable, UNUSABLE, *ENTRIES, file=shown, list="annotations", lacks=lacks)
    elsewhere = "{file} has captions of {count} that it does not list: {items}; list them or take the captions out."
    issues.problem(dict.fromkeys(unlisted), elsewhere, "image", file=shown)
    issues.warning(empty, "{file} has {count}, left out: of image {items}.", "empty caption", file=shown)


def _id_of(entry: Any, key: str) -> str | None:
    """An id as text; None where there is none. COCO's are integers, those of others may be text."""
    value = entry.get(key) if isinstance(entry, dict) else None
    if type(value) is int:  # isinstance(True, int) is true
        return str(value)
    return value if isinstance(value, str) and value else None


def _choose_splits(file: Path, images: dict[str, _Image], issues: DatasetIssues) -> dict[str, str]:
    """The split of each image of a file that is not named after a split."""
    names = {image_id: (*_file_names(image.entry), image_id) for image_id, image in images.items()}
    return choose_splits(names, [root_of(file), file.parent], issues, issues.display(file), _REMEDY)


# --- images ---


def _image_folders(file: Path) -> list[Path]:
    """Folders where the images of a captions file may lie, the most likely first."""
    root = root_of(file)
    with_year = file.stem.removeprefix("captions_")  # train2014
    names = dict.fromkeys(filter(None, (with_year, _split_of(file))))
    own = [folder / name for folder in (root, root / "images") for name in names]
    return list(dict.fromkeys([*own, root / "images", root, file.parent]))


def _file_names(entry: dict[str, Any]) -> Iterator[str]:
    """Possible file names of an image. Those of 2014 contain their split, those of 2017 are the number alone."""
    name = entry.get("file_name")
    if isinstance(name, str) and name:
        yield name.replace("\\", "/")
    address = entry.get("coco_url")
    if isinstance(address, str) and address:
        yield "/".join(address.split("/")[-2:]).lstrip("/")
        yield address.rpartition("/")[2]
    if isinstance(name, str) and re.fullmatch(r"COCO_[a-z]+20\d\d_\d{12}\.jpg", name):
        yield name.rpartition("_")[2]


# --- boxes ---


def read_boxes(file: Path, issues: DatasetIssues) -> dict[str, list[Box]] | None:
    """The boxes of each image by its id; None where there is no instances file, or none that can be read."""
    if "instances" not in file.name or not file.is_file():
        return None
    try:
        content = _sections(file, _without_outlines(file), ("annotations", "categories"))
    except DataError as error:
        issues.warnings.append(f"No boxes were read: {error}")
        return None
    return _boxes(file, content, issues)


def _boxes(file: Path, content: dict[str, list[Any]], issues: DatasetIssues) -> dict[str, list[Box]]:
    """The boxes of the content of an instances file by image; those that cannot be used are reported."""
    categories = {
        entry["id"]: str(entry.get("name", entry["id"]))
        for entry in content["categories"]
        if isinstance(entry, dict) and isinstance(entry.get("id"), int)
    }
    boxes: dict[str, list[Box]] = {}
    unusable = []
    for number, entry in enumerate(content["annotations"], start=1):
        image_id = _id_of(entry, "image_id")
        try:
            x, y, width, height = map(float, entry["bbox"])
            if not math.isfinite(x + y + width + height):
                raise ValueError("a coordinate that no image has")
            box = Box(operator.index(entry["id"]), x, y, width, height, categories[entry["category_id"]])
        except (KeyError, OverflowError, TypeError, ValueError):
            image_id = None
        if image_id is None:
            unusable.append(number)
        else:
            boxes.setdefault(image_id, []).append(box)
    lacks = 'an "id", an "image_id", a "bbox" of four numbers or a listed category, left out'
    issues.warning(unusable, UNUSABLE, *ENTRIES, file=issues.display(file), list="annotations", lacks=lacks)
    return boxes


def read_instances(file: Path) -> tuple[dict[str, frozenset[str]], frozenset[str], list[str]]:
    """The annotated categories of each image that an instances file lists, all categories, and what was left out.

    Raises:
        DataError: it cannot be read, or has not the form of COCO's instances.
    """
    content = _sections(file, _without_outlines(file), ("images", "annotations", "categories"))
    issues = DatasetIssues(file)
    boxes = _boxes(file, content, issues)
    images = {image for entry in content["images"] if (image := _id_of(entry, "id")) is not None} | boxes.keys()
    names = frozenset(str(one["name"]) for one in content["categories"] if isinstance(one, dict) and "name" in one)
    objects = {image: frozenset(box.category for box in boxes.get(image, ())) for image in images}
    return objects, names, issues.warnings


def _without_outlines(file: Path) -> Any:
    try:
        return json.loads(_OUTLINE.sub(b'"segmentation":null', read_bytes(file)))
    except (RecursionError, ValueError):
        return read_json(file)  # whose message has the line in the whole file


def _report_repeated_boxes(records: list[CaptionRecord], issues: DatasetIssues) -> None:
    uses = Counter(box.id for record in records for box in record.boxes or ())
    repeated = [number for number, count in uses.items() if count > 1]
    issues.warning(repeated, "{count} for more than one box: {items}.", "id stands", "ids stand")


# --- groundings ---


def _groundings(
    image_id: str, image: _Image, boxes: Iterable[Box], invalid: list[str]
) -> tuple[tuple[Grounding, ...], ...]:
    """The groundings of each caption, none for one whose groundings do not fit; its image is added to `invalid`."""
    known = {box.id for box in boxes}
    parsed = []
    for caption, entries in zip(image.captions, image.groundings, strict=True):
        try:
            parsed.append(_parse_groundings(entries or [], len(caption.split()), known))
        except (KeyError, TypeError, ValueError):
            invalid.append(image_id)
            parsed.append(())
    return tuple(parsed)


def _parse_groundings(entries: Any, words: int, known: set[int]) -> tuple[Grounding, ...]:
    """The groundings of a caption with this number of words.

    Raises:
        KeyError, TypeError, ValueError: they do not fit the caption or the boxes.
    """
    index = operator.index
    groundings = tuple(Grounding(index(g["first"]), index(g["end"]), tuple(g["boxes"])) for g in entries)
    for grounding in groundings:
        if not (0 <= grounding.first < grounding.end <= words and known.issuperset(grounding.boxes)):
            raise ValueError(f"{grounding} does not fit {words} words")
    return groundings
