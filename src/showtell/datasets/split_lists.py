"""Lists that choose the splits: train.txt, val.txt and test.txt beside a dataset, and the official ones of Flickr8k.

A list names an image a line: by its id, or by its file with or without folder and suffix. Lists are read where the
dataset itself says nothing of splits; where there are none either, the splits are drawn by the images' names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from showtell.datasets.encoding import read_text
from showtell.datasets.issues import DatasetIssues, counted
from showtell.datasets.records import CaptionDataset
from showtell.datasets.splits import draw_splits, drawn_warning, split_name
from showtell.errors import DataError, summarise
from showtell.files import write_text
from showtell.images.photo_files import is_image_file

NAMES = ("train", "val", "test")  # of the lists that are written

# val.txt, flickr30k_val.txt, Flickr_8k.devImages.txt
_LIST = re.compile(
    r"(?:(?:flickr.*[._-])?(?P<own>train|training|val|valid|validation|dev|test|testing)"
    r"|.*?(?P<official>train|dev|val|test)images)\.txt",
    re.IGNORECASE,
)


def choose_splits(
    images: Mapping[str, Sequence[str]], folders: Iterable[Path], issues: DatasetIssues, shown: str, remedy: str
) -> dict[str, str]:
    """The split of each image of which the dataset does not say one. An image that no list names has none.

    Args:
        images: key of each image, with the names that it goes by; it is drawn by the first.
        folders: where lists may lie; where none does, lists in the first would choose.
        issues: gets what is odd, and where lists would choose splits that were drawn.
        shown: what messages call the file that says nothing of splits.
        remedy: the end of the sentence about drawn splits.
    """
    folders = list(dict.fromkeys(folders))
    lists = find_lists(folders)
    if lists:
        return _read_lists(lists, images, issues, shown)
    issues.drawn_in = issues.drawn_in or folders[0]
    drawn = draw_splits(names[0] for names in images.values())
    splits = {key: drawn[names[0]] for key, names in images.items()}
    if splits:
        issues.warnings.append(drawn_warning(shown, splits.values(), remedy))
    return splits


def find_lists(folders: Iterable[Path]) -> list[tuple[str, Path]]:
    """The lists of the first of some folders that has any, each with its split.

    A list beside a photo of its name is no list, but holds that photo's captions.
    """
    for folder in folders:
        try:
            names = os.listdir(folder)  # noqa: PTH208 (names are enough)
        except OSError:
            continue
        matches = {name: match for name in sorted(names) if (match := _LIST.fullmatch(name))}
        if matches:
            photos = {name.rpartition(".")[0] for name in names if is_image_file(name)}
            found = [
                (split_name(match["own"] or match["official"]), folder / name)
                for name, match in matches.items()
                if name.rpartition(".")[0] not in photos
            ]
            if found:
                return found
    return []


def write_lists(dataset: CaptionDataset, splits: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the lists that give a dataset's images these splits, by their ids.

    Args:
        dataset: whose splits were drawn.
        splits: of each image id: train, val or test.
        folder: to write into; it is made.

    Raises:
        DataError: there are lists already, an id does not fit into a line, or the folder cannot be written to.
    """
    there = find_lists([folder])
    if there:
        raise DataError(
            f"{there[0][1]} chooses the splits already and is not overwritten; move the lists away to draw anew."
        )
    unfit = [image_id for image_id in splits if image_id.splitlines() != [image_id.strip()]]
    if unfit:
        raise DataError(
            f"{dataset.root} has {counted(len(unfit), 'id')} with a line break or white space around it, which a "
            f"list cannot name: {summarise(map(repr, unfit))}."
        )
    written = []
    for name in NAMES:
        ids = [image_id for image_id, split in splits.items() if split == name]
        if ids:
            file = folder / f"{name}.txt"
            write_text(file, "".join(f"{image_id}\n" for image_id in ids))
            written.append(file)
    return written


def _read_lists(
    lists: Sequence[tuple[str, Path]], images: Mapping[str, Sequence[str]], issues: DatasetIssues, shown: str
) -> dict[str, str]:
    known = _by_name(images)
    splits: dict[str, str] = {}
    unknown: list[str] = []
    several: dict[str, None] = {}
    for split, file in lists:
        try:
            lines = read_text(file, "a list").splitlines()
        except DataError as error:
            issues.problems.append(str(error))
            continue
        for name in filter(None, map(str.strip, lines)):
            key = next((known[alias] for alias in _aliases(name) if known.get(alias) is not None), None)
            if key is None:
                unknown.append(name)
            elif splits.setdefault(key, split) != split:
                several[name] = None
    files = " and ".join(issues.shown(file) for _, file in lists)
    if unknown:
        issues.warnings.append(
            f"{files} name {counted(len(unknown), 'image')} that {shown} has no caption of: {summarise(unknown)}."
        )
    if several:
        issues.problems.append(
            f"{counted(len(several), 'image stands', 'images stand')} in more than one of {files}: "
            f"{summarise(several)}; what is scored must not have been trained on, so keep each in one list."
        )
    left_out = [names[0] for key, names in images.items() if key not in splits]
    if left_out:
        issues.warnings.append(
            f"{counted(len(left_out), 'image of', 'images of')} {shown} {'is' if len(left_out) == 1 else 'are'} in "
            f"none of {files} and left out: {summarise(left_out)}."
        )
    return splits


def _by_name(images: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The image of each name that a list may use; None for a short name that several go by."""
    known: dict[str, str | None] = {}
    exact = {name: key for key, names in images.items() for name in (key, *names)}
    for name, key in exact.items():
        for alias in _aliases(name)[1:]:
            known[alias] = key if known.get(alias, key) == key else None
    return {**known, **exact}


def _aliases(name: str) -> list[str]:
    """A name, the same without folders, and that without the suffix of a photo."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return list(dict.fromkeys([name, last, PurePosixPath(last).stem if is_image_file(last) else last]))
