"""Splits: their names, the split that a file is named after, and drawing splits at random."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

NAMES = ("train", "val", "test")
SYNONYMS = {
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


def split_name(written: str) -> str:
    """The standard name of a split, such as val for "Validation"; any other as written."""
    return SYNONYMS.get(written.strip().lower(), written.strip())


def split_rank(name: str) -> tuple[int, str]:
    """Sort key of splits: train, val, test, then the others by name."""
    return (NAMES.index(name) if name in NAMES else len(NAMES), name)


def split_of_name(name: str) -> str | None:
    """The split of a name that says one and nothing else, as "coco_karpathy_val", not "train_stations"; else None."""
    words = set(re.split(r"[^a-z]+", name.lower())) - _NEUTRAL_WORDS
    return SYNONYMS.get(words.pop()) if len(words) == 1 else None


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
    named = [index for index, word in enumerate(words) if word in SYNONYMS]
    if len(named) != 1:
        return None
    start = sum(map(len, words[: named[0]]))
    end, split = start + len(words[named[0]]), SYNONYMS[words[named[0]]]
    others = (path.name[:start] + word + path.name[end:] for word, own in SYNONYMS.items() if own != split)
    return split if any((path.with_name(other) / below).exists() for other in others) else None


def draw_splits(names: Iterable[str], val: float = VAL_SHARE, test: float = TEST_SHARE) -> dict[str, str]:
    """Draw a split for each image by a hash of its name, so that it stays in its split when others are added.

    `val` and `test` are shares, together less than 1. Each gets at least one image if there are enough, for which the
    borders of small sets move as little as needed; with too few images, all are for training.
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
