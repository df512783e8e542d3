"""Lists that choose the splits: train.txt, val.txt and test.txt beside a dataset, or the official ones of Flickr8k.

A list names one image per line: by its id, or by its file with or without folder and suffix. Lists are read if the
dataset itself has no splits; without lists, the splits are drawn by the names of the images.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from showtell.datasets.issues import DatasetIssues, counted
from showtell.datasets.records import CaptionDataset
from showtell.datasets.splits import draw_splits, drawn_warning, split_name
from showtell.errors import DataError, summarise
from showtell.files import read_text, write_text
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
    """The split of each image of a dataset without splits, from lists or at random. An image in no list has none.

    Args:
        images: key of each image, with its names; its split is drawn by the first.
        folders: where lists may lie; without any, the first is named as the folder for lists.
        issues: gets problems and warnings, and the folder where lists would choose splits that were drawn.
        shown: the name of the file without splits in messages.
        remedy: the end of the warning about drawn splits.
    """
    folders = list(dict.fromkeys(folders))
    lists = find_lists(folders)
    if lists:
        return _read_lists(lists, images, issues, shown)
    issues.split_lists_folder = issues.split_lists_folder or folders[0]
    drawn = draw_splits(names[0] for names in images.values())
    splits = {key: drawn[names[0]] for key, names in images.items()}
    if splits:
        issues.warnings.append(drawn_warning(shown, splits.values(), remedy))
    return splits


def find_lists(folders: Iterable[Path]) -> list[tuple[str, Path]]:
    """The lists of the first of some folders that has any, each with its split.

    A list beside a photo of the same name is none: it holds the captions of that photo.
    """
    for folder in folders:
        try:
            names = os.listdir(folder)  # noqa: PTH208 (names are enough)
        except OSError:
            continue
        matches = {name: match for name in sorted(names) if (match := _LIST.fullmatch(name))}
        if matches:
            photos = {name.rpartition(".")[0] for name in names if is_image_file(name)}
            lists = [
                (split_name(match["own"] or match["official"]), folder / name)
                for name, match in matches.items()
                if name.rpartition(".")[0] not in photos
            ]
            if lists:
                return lists
    return []


def write_lists(dataset: CaptionDataset, splits: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the lists that give a dataset's images these splits, by their ids.

    Args:
        dataset: whose splits were drawn.
        splits: train, val or test for each image id.
        folder: to write into; it is made.

    Raises:
        DataError: there are lists already, an id does not fit into a line, or the folder cannot be written to.
    """
    existing = find_lists([folder])
    if existing:
        raise DataError(
            f"{existing[0][1]} chooses the splits already and is not overwritten; move the lists away to draw anew."
        )
    unwritable = [image_id for image_id in splits if image_id.splitlines() != [image_id.strip()]]
    if unwritable:
        raise DataError(
            f"{dataset.root} has {counted(len(unwritable), 'id')} with a line break or white space around it, which a "
            f"list cannot name: {summarise(map(repr, unwritable))}."
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
    ambiguous: dict[str, None] = {}
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
                ambiguous[name] = None
    files = " and ".join(issues.display(file) for _, file in lists)
    shared = {"file": shown, "lists": files}
    issues.warning(unknown, "{lists} name {count} that {file} has no caption of: {items}.", "image", **shared)
    issues.problem(
        ambiguous,
        "{count} in more than one of {lists}: {items}; what is scored must not have been trained on, so keep each in "
        "one list.",
        *("image stands", "images stand"),
        **shared,
    )
    left_out = [names[0] for key, names in images.items() if key not in splits]
    issues.warning(left_out, "{lists} leave out {count} of {file}: {items}.", "image", **shared)
    return splits


def _by_name(images: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The image of each name that a list may use; None for a short name that several images have."""
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
