"""Splits: their names, the split that a file is named after, and drawing splits at random."""

from __future__ import annotations

import bisect
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

_NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_NEUTRAL_WORDS = {"", "annotations", "caption", "captions", "data", "dataset", "set", "split"}

UNCHECKED = "unchecked"  # of captions that nobody has looked at yet, and so no split to train on
VAL_SHARE, TEST_SHARE = 0.1, 0.1  # of the images; the rest is for training
_KEY = "showtell splits"  # a different key would move every image


def split_name(written: str) -> str:
    """The standard name of a split: train, val or test; any other as written.

    >>> split_name("Validation"), split_name("test_compositional")
    ('val', 'test_compositional')
    """
    return _NAMES.get(written.strip().lower(), written.strip())


def split_rank(name: str) -> tuple[int, str]:
    """Sort key of splits: train, val, test, then the others by name."""
    usual = ("train", "val", "test")
    return (usual.index(name) if name in usual else len(usual), name)


def split_of_file(stem: str) -> str | None:
    """The split of a file that is named after one and nothing else; otherwise None.

    >>> split_of_file("captions-train2014"), split_of_file("train"), split_of_file("train_stations")
    ('train', 'train', None)
    """
    words = set(re.split(r"[^a-z]+", stem.lower())) - _NEUTRAL_WORDS
    return _NAMES.get(words.pop()) if len(words) == 1 else None


def sort_by_split(files: Iterable[Path]) -> list[Path]:
    """Files in the order of the splits that they are named after."""
    return sorted(files, key=lambda file: split_rank(split_of_file(file.stem) or ""))


def draw_splits(
    names: Iterable[str], seed: int | None = None, val: float = VAL_SHARE, test: float = TEST_SHARE
) -> dict[str, str]:
    """Draw a split for each image by a hash of its name and the seed: about 80% train, 10% val and 10% test.

    The same name always draws the same number, so an image stays in its split when others are added.
    If there are enough images, each split with a share gets at least one; for this the borders move as little as
    needed, which only happens in small sets. With fewer images, all are for training.

    Args:
        names: of the images.
        seed: random seed; None is one of its own.
        val: share of the images, 0 to 1.
        test: share of the images; together with `val` less than 1.
    """
    numbered = sorted((hash_number(name, seed), name) for name in set(names))
    count = len(numbered)
    min_val, min_test = int(val > 0), int(test > 0)
    train_end, val_end = count, count
    if count > min_val + min_test:
        val_below = 1 - test  # of a number in [0, 1); what lies above is test
        train_below = val_below - val
        max_val_end = count - min_test
        train_end = min(max(bisect.bisect_left(numbered, (train_below, "")), 1), max_val_end - min_val)
        val_end = min(max(bisect.bisect_left(numbered, (val_below, "")), train_end + min_val), max_val_end)
    return {
        name: "train" if index < train_end else "val" if index < val_end else "test"
        for index, (_, name) in enumerate(numbered)
    }


def drawn_warning(shown: str, splits: Iterable[str], remedy: str) -> str:
    """The warning that the splits of a file were drawn, and how to choose them."""
    images = Counter(splits)
    numbers = ", ".join(f"{images[name]:,} {name}" for name in ("train", "val", "test"))
    return f"{shown} has no splits, so they were drawn by the images' names: {numbers}; {remedy}."


def hash_number(name: str, seed: int | None = None) -> float:
    """A number in [0, 1), a function of the name and the seed alone."""
    key = _KEY if seed is None else f"{_KEY} {seed}"
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6, key=key.encode()).digest()
    return int.from_bytes(digest) / 2**48
