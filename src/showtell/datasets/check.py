"""Checks for `showtell data check`: counts, statistics of captions in words of the tokenizer, every image opened."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from showtell.cores import usable_cores
from showtell.datasets.issues import DatasetIssues, missing_files
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_rank
from showtell.errors import ImageError
from showtell.images.photo import decode_photo, read_photo
from showtell.text.tokenizer import tokenize

FREQUENT_COUNT = 5  # papers and recipes keep the words that train has at least this often

# Images of Karpathy's splits: A. Karpathy, L. Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015. His train of COCO
# is train2014, 82,783 images, and the 30,504 of val2014 ("restval") that are neither in his val nor in his test.
PUBLISHED = {
    "coco": {"train": 113_287, "val": 5_000, "test": 5_000},
    "flickr8k": {"train": 6_000, "val": 1_000, "test": 1_000},
    "flickr30k": {"train": 29_000, "val": 1_014, "test": 1_000},
}
TRAIN2014 = 82_783


@dataclass(frozen=True)
class DatasetReport:
    """Counts, statistics, problems and warnings of a dataset."""

    format: str
    images: dict[str, int]  # number in each split: train, val, test, then others
    captions: dict[str, int]  # number in each split
    captions_per_image: dict[str, float]  # see `distribution`
    words_per_caption: dict[str, float]
    vocabulary: int  # different words of train; of all splits where there is no train
    frequent_words: int  # those of them that occur five times or more
    unseen: dict[str, float]  # of each split but train, the share of its words that do not occur in train
    images_opened: bool
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def check_dataset(
    dataset: CaptionDataset, *, open_images: bool = True, progress: Callable[[int], None] = lambda done: None
) -> DatasetReport:
    """Check a dataset of `read_dataset`; `progress` gets numbers of images that add up to that of records."""
    issues = DatasetIssues(dataset.root, list(dataset.problems), list(dataset.warnings))
    splits = sorted(dataset.splits, key=split_rank)
    words: dict[str, Counter[str]] = {split: Counter() for split in splits}
    lengths: dict[str, list[int]] = {split: [] for split in splits}  # words of each caption
    for record in dataset.records:
        for tokens in map(tokenize, record.captions):
            words[record.split].update(tokens)
            lengths[record.split].append(len(tokens))
    if splits and "train" not in splits:
        issues.warnings.append(
            f"There is no split train, only {', '.join(splits)}: nothing can be learned from this, only scored."
        )
    issues.warnings.extend(compare_with_published(dataset.name, dataset.splits))
    if open_images:
        _examine_images(dataset.records, issues, progress)
    learned = words["train"] if "train" in words else sum(words.values(), Counter())
    others = [split for split in splits if split != "train"] if "train" in words else []
    return DatasetReport(
        format=dataset.format, images={split: dataset.splits[split] for split in splits},
        captions={split: len(lengths[split]) for split in splits},
        captions_per_image=distribution(len(record.captions) for record in dataset.records),
        words_per_caption=distribution(count for own in lengths.values() for count in own),
        vocabulary=len(learned), frequent_words=sum(count >= FREQUENT_COUNT for count in learned.values()),
        unseen={split: _share_unknown(words[split], learned) for split in others}, images_opened=open_images,
        problems=tuple(issues.problems), warnings=tuple(issues.warnings),
    )  # fmt: skip


def distribution(numbers: Iterable[int]) -> dict[str, float]:
    """Minimum, mean, median, the least number that 95% do not exceed, and maximum; nothing without numbers."""
    ordered = sorted(numbers)
    if not ordered:
        return {}
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {"min": ordered[0], "mean": fmean(ordered), "median": median(ordered), "p95": p95, "max": ordered[-1]}


def _share_unknown(words: Counter[str], known: Container[str]) -> float:
    return sum(count for word, count in words.items() if word not in known) / max(words.total(), 1)


def compare_with_published(name: str, images: Mapping[str, int]) -> list[str]:
    """Warnings about a dataset that says it is a published one, by its number of images in each split, and is not."""
    wrong = [
        f"{split} has {images.get(split, 0):,} images, not {expected:,}"
        for split, expected in PUBLISHED.get(name, {}).items()
        if images.get(split, 0) != expected
    ]
    if images.get("train") == TRAIN2014:
        wrong.append("train is COCO's train2014 alone, without the images of val2014 that Karpathy's has (restval)")
    return [f"Scores are not comparable with those on Karpathy's splits: {'; '.join(wrong)}."] if wrong else []


def _examine_images(records: Sequence[CaptionRecord], issues: DatasetIssues, progress: Callable[[int], None]) -> None:
    """Open every image, report those that cannot be read, and those with the same content."""
    missing = set(missing_files(records))  # a problem already
    opened = {record.path: record for record in records if record.path not in missing}
    progress(len(records) - len(opened))
    by_content: dict[bytes, dict[str, str]] = {}  # the first name in each split
    unreadable, repeated = [], []
    shared: dict[tuple[str, str], list[str]] = {}
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for record, digest in zip(opened.values(), pool.map(_digest, opened), strict=True):
            progress(1)
            name = issues.display(record.path)
            if isinstance(digest, ImageError):
                unreadable.append(str(digest).removesuffix("."))
                continue
            names = by_content.setdefault(digest, {})
            if record.split in names:
                repeated.append(f"{name} = {names[record.split]}")
            names.setdefault(record.split, name)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C nobody waits for the rest
    issues.problem(unreadable, "image|images", "cannot be read")
    issues.warning(repeated, "image repeats|images repeat", "another of the same split byte for byte")
    for names in by_content.values():
        for (split, first), (other, second) in combinations(names.items(), 2):
            shared.setdefault((split, other), []).append(f"{first} = {second}")
    issues.shared(shared, "image is|images are", "the same, byte for byte, in {} and {}")


def _digest(path: Path) -> bytes | ImageError:
    """The hash of an image's bytes, or why it cannot be opened."""
    try:
        content = read_photo(path)
        decode_photo(content, str(path))
    except ImageError as error:
        return error
    return hashlib.blake2b(content, digest_size=16).digest()
