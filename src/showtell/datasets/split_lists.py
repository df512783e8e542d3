"""The splits of a dataset that gives none: from lists beside it, or drawn by the names of the images.

A list names one image per line: by its id, or by its file with or without folder and suffix. They are train.txt,
val.txt and test.txt, or the official ones of Flickr8k.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from showtell.datasets.image_files import names_in
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.splits import NAMES, SYNONYMS, draw_splits, split_name
from showtell.files import read_text
from showtell.images.photo_files import is_image_file

# val.txt, flickr30k_val.txt, Flickr_8k.devImages.txt
_LIST = re.compile(
    rf"(?:(?:flickr.*[._-])?(?P<own>{'|'.join(SYNONYMS)})|.*?(?P<official>train|dev|val|test)images)\.txt",
    re.IGNORECASE,
)


def choose_splits(
    images: Sequence[Sequence[str]], folders: Sequence[Path], issues: DatasetIssues, shown: str, remedy: str
) -> dict[int, str]:
    """Splits by index of images, from lists (none for an image in no list) or drawn by their first names."""
    if lists := find_lists(folders):
        return _read_lists(lists, images, issues, shown)
    drawn = draw_splits(names[0] for names in images)
    splits = {index: drawn[names[0]] for index, names in enumerate(images)}
    if splits:
        issues.has_drawn_splits = True
        counts = Counter(splits.values())
        numbers = ", ".join(f"{counts[name]:,} {name}" for name in NAMES)
        issues.warnings.append(
            f"{shown} has no splits, so they were drawn by the images' names: {numbers}; {remedy} would choose them."
        )
    return splits


def find_lists(folders: Iterable[Path]) -> list[tuple[str, Path]]:
    """The lists, each with its split, of the first folder that has any; one beside its photo is a caption of that."""
    for folder in folders:
        names = sorted(names_in(str(folder)))
        matches = [match for name in names if (match := _LIST.fullmatch(name))]
        photos = {Path(name).stem for name in names if is_image_file(name)} if matches else set()
        if lists := [match for match in matches if Path(match.string).stem not in photos]:
            return [(split_name(match["own"] or match["official"]), folder / match.string) for match in lists]
    return []


def _read_lists(
    lists: Sequence[tuple[str, Path]], images: Sequence[Sequence[str]], issues: DatasetIssues, shown: str
) -> dict[int, str]:
    known = _by_name(images)
    splits: dict[int, str] = {}
    several: dict[str, None] = {}
    for split, file in lists:
        unknown: list[str] = []
        for name in filter(None, map(str.strip, re.split(r"[\r\n]+", read_text(file, "a list")))):
            index = next((known[alias] for alias in _aliases(name) if known.get(alias) is not None), None)
            if index is None:
                unknown.append(name)
            elif splits.setdefault(index, split) != split:
                several[name] = None
        issues.warning(unknown, "image|images", f"in {issues.display(file)} without a caption in {shown}")
    files = " and ".join(issues.display(file) for _, file in lists)
    keep = "what is scored must not have been trained on, so keep each in one list"
    issues.problem(several, "image is|images are", f"in more than one of {files}", keep)
    left_out = [names[0] for index, names in enumerate(images) if index not in splits]
    issues.warning(left_out, "image of|images of", f"{shown} left out, being in none of {files}")
    return splits


def _by_name(images: Sequence[Sequence[str]]) -> dict[str, int | None]:
    """The image of each name that a list may use; None for a short name that several images have."""
    known: dict[str, int | None] = {}
    exact = {name: index for index, names in enumerate(images) for name in names}
    for name, index in exact.items():
        for alias in _aliases(name)[1:]:
            known[alias] = index if known.get(alias, index) == index else None
    return {**known, **exact}


def _aliases(name: str) -> list[str]:
    """A name, the same without folders, and that without the suffix of a photo."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return list(dict.fromkeys([name, last, PurePosixPath(last).stem if is_image_file(last) else last]))
