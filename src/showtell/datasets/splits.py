"""Splits: their names, the split that a file is named after, drawing splits at random, and lists that choose them.

A list names one image per line: by its id, or by its file with or without folder and suffix. Lists are read if the
dataset itself has no splits: train.txt, val.txt and test.txt beside it, or the official ones of Flickr8k. Without
lists, the splits are drawn by the names of the images.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from showtell.datasets.image_files import names_in
from showtell.files import read_text
from showtell.images.photo_files import is_image_file

if TYPE_CHECKING:
    from showtell.datasets.issues import DatasetIssues

NAMES = ("train", "val", "test")
_SYNONYMS = {
    **dict.fromkeys(("train", "training", "restval"), "train"),  # Karpathy's rest of COCO's validation set
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_NEUTRAL_WORDS = {
    *("", "annotations", "caption", "captions", "data", "dataset", "set", "split", "metadata", "gt"),
    *("coco", "mscoco", "flickr", "k", "karpathy", "nocaps", "textcaps", "vizwiz"),
}

UNCHECKED = "unchecked"  # of captions that nobody has looked at yet, and so no split to train on
VAL_SHARE, TEST_SHARE = 0.1, 0.1  # of the images; the rest is for training
_KEY = b"showtell splits"  # a different key would move every image

# val.txt, flickr30k_val.txt, Flickr_8k.devImages.txt
_LIST = re.compile(
    rf"(?:(?:flickr.*[._-])?(?P<own>{'|'.join(_SYNONYMS)})|.*?(?P<official>train|dev|val|test)images)\.txt",
    re.IGNORECASE,
)


def split_name(written: str) -> str:
    """The standard name of a split: train, val or test; any other as written.

    >>> split_name("Validation"), split_name("test_compositional")
    ('val', 'test_compositional')
    """
    return _SYNONYMS.get(written.strip().lower(), written.strip())


def split_rank(name: str) -> tuple[int, str]:
    """Sort key of splits: train, val, test, then the others by name."""
    return (NAMES.index(name) if name in NAMES else len(NAMES), name)


def split_of_name(name: str) -> str | None:
    """The split of a name that says one and nothing else; otherwise None.

    >>> split_of_name("captions-train2014"), split_of_name("coco_karpathy_val"), split_of_name("train_stations")
    ('train', 'val', None)
    """
    words = set(re.split(r"[^a-z]+", name.lower())) - _NEUTRAL_WORDS
    return _SYNONYMS.get(words.pop()) if len(words) == 1 else None


def split_of_file(file: Path, root: Path | None = None) -> str | None:
    """The split that a file is named after: its own name, or that of its folder (`train/metadata.csv`).

    Further words are ignored where the same file of another split lies beside it (`birds_train.csv`, `birds_val.csv`),
    and the folder counts below a root or beside another.
    """
    return split_of_name(file.stem) or _split_beside(file) or split_of_folder(file, root)


def split_of_folder(file: Path, root: Path | None) -> str | None:
    """The split that the folder of a file is named after; see `split_of_file`."""
    is_below = root is not None and root in file.parent.parents
    return (split_of_name(file.parent.name) if is_below else None) or _split_beside(file.parent, file.name)


def _split_beside(path: Path, below: str = "") -> str | None:
    """The split that a name holds of a file or folder, if another split has the same in its place."""
    words = re.split(r"([^a-z]+)", path.name.partition(".")[0].lower())
    named = [index for index, word in enumerate(words) if word in _SYNONYMS]
    if len(named) != 1:
        return None
    start = sum(map(len, words[: named[0]]))
    end, split = start + len(words[named[0]]), _SYNONYMS[words[named[0]]]
    others = (path.name[:start] + word + path.name[end:] for word, own in _SYNONYMS.items() if own != split)
    return split if any((path.with_name(other) / below).exists() for other in others) else None


def sort_by_split(files: Iterable[Path], root: Path | None = None) -> list[Path]:
    """Files in the order of the splits that they are named after; see `split_of_file`."""
    return sorted(files, key=lambda file: split_rank(split_of_file(file, root) or ""))


def draw_splits(names: Iterable[str], val: float = VAL_SHARE, test: float = TEST_SHARE) -> dict[str, str]:
    """Draw a split for each image by a hash of its name; `val` and `test` are shares, together less than 1.

    The same name always draws the same number, so an image stays in its split when others are added.
    If there are enough images, each split with a share gets at least one; for this the borders move as little as
    needed, which only happens in small sets. With fewer images, all are for training.
    """
    numbered = sorted((hash_number(name), name) for name in set(names))
    min_val, min_test, train_end, val_end = int(val > 0), int(test > 0), len(numbered), len(numbered)
    if len(numbered) > min_val + min_test:
        val_below = 1 - test  # of a number in [0, 1); what lies above is test
        max_val_end = len(numbered) - min_test
        train_end = min(max(bisect.bisect_left(numbered, (val_below - val, "")), 1), max_val_end - min_val)
        val_end = min(max(bisect.bisect_left(numbered, (val_below, "")), train_end + min_val), max_val_end)
    return {
        name: "train" if index < train_end else "val" if index < val_end else "test"
        for index, (_, name) in enumerate(numbered)
    }


def hash_number(name: str) -> float:
    """A number in [0, 1), a function of the name alone."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6, key=_KEY).digest()
    return int.from_bytes(digest) / 2**48


# --- lists ---


def choose_splits(
    images: Sequence[Sequence[str]], folders: Sequence[Path], issues: DatasetIssues, shown: str, remedy: str
) -> dict[int, str]:
    """The split of each image, by its index, of a dataset without splits, from lists or drawn by its first name.

    An image in no list has none.
    """
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
    """The lists of the first of some folders that has any, each with its split.

    A list beside a photo of the same name is none: it holds the captions of that photo.
    """
    for folder in folders:
        names = sorted(names_in(str(folder)))
        matches = [match for name in names if (match := _LIST.fullmatch(name))]
        photos = {Path(name).stem for name in names if is_image_file(name)} if matches else set()
        lists = [match for match in matches if Path(match.string).stem not in photos]
        if lists:
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
        for name in filter(None, map(str.strip, read_text(file, "a list").splitlines())):
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
