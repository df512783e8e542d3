"""Checking a dataset for `showtell data check`: counts, statistics of captions, and every image opened."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from showtell.cores import usable_cores
from showtell.datasets.caption_statistics import FREQUENT_COUNT, CaptionStatistics, CheckpointCoverage, Distribution
from showtell.datasets.issues import DatasetIssues, counted, missing_files
from showtell.datasets.near_duplicates import near_duplicates, thumbnail
from showtell.datasets.published import compare_with_published
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_rank
from showtell.errors import ImageError, summarise
from showtell.images.photo import decode_photo, read_photo
from showtell.text.vocabulary import Vocabulary

MAX_NAMED = 10  # unreadable images that get a sentence of their own


@dataclass(frozen=True)
class DatasetReport:
    """Counts, statistics, problems and warnings of a dataset."""

    format: str
    splits: dict[str, tuple[int, int]]  # images and captions of each split: train, val, test, then others
    captions_per_image: Distribution | None
    words_per_caption: Distribution | None  # words as the tokenizer makes them, punctuation left out
    vocabulary: int  # different words of train; of all splits where there is no train
    frequent_words: int  # those of them that occur five times or more
    unseen: dict[str, float]  # of each split but train, the share of its words that do not occur in train
    coverage: CheckpointCoverage | None  # None where the captions were not compared with a checkpoint
    images_opened: bool
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def images(self) -> int:
        """Number of images in all splits."""
        return sum(images for images, _ in self.splits.values())

    @property
    def captions(self) -> int:
        """Number of captions in all splits."""
        return sum(captions for _, captions in self.splits.values())

    def as_json(self) -> dict[str, Any]:
        """The object that `data check --json` prints."""
        per_image, per_caption = self.captions_per_image, self.words_per_caption
        return {
            "format": self.format,
            "images": self.images,
            "captions": self.captions,
            "splits": {name: images for name, (images, _) in self.splits.items()},
            "captions_per_image": per_image and asdict(per_image),
            "words_per_caption": per_caption and asdict(per_caption),
            "vocabulary": {"words": self.vocabulary, "five_times": self.frequent_words, "unseen": self.unseen},
            "images_opened": self.images_opened,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
        }


def check_dataset(
    dataset: CaptionDataset,
    *,
    open_images: bool = True,
    vocabulary: Vocabulary | None = None,
    max_length: int = 20,
    progress: Callable[[int], None] = lambda done: None,
) -> DatasetReport:
    """Check a dataset: open every image, compare their contents, count splits, captions and words.

    Args:
        dataset: from `read_dataset`; its problems and warnings come first in the report.
        open_images: False checks of images only that their files exist.
        vocabulary: of a checkpoint to compare the captions with.
        max_length: words of a caption of this checkpoint at most.
        progress: called with the number of images opened since the last call; the numbers add up to that of records.
    """
    issues = DatasetIssues(dataset.root, list(dataset.problems), list(dataset.warnings))
    images = dataset.splits
    captions: Counter[str] = Counter()  # of each split
    for record in dataset.records:
        captions[record.split] += len(record.captions)
    splits = {name: (images[name], captions[name]) for name in sorted(images, key=split_rank)}
    if splits and "train" not in splits:
        issues.warnings.append(
            f"There is no split train, only {', '.join(splits)}: nothing can be learned from this, only scored."
        )
    issues.warnings.extend(compare_with_published(dataset.name, images, dataset.restval))
    statistics = CaptionStatistics.of(dataset.records)
    coverage = None if vocabulary is None else statistics.coverage(vocabulary, max_length)
    issues.warnings.extend(coverage.warnings() if coverage else ())
    if open_images:
        _examine_images(dataset.records, issues, progress)
    return DatasetReport(
        format=dataset.format,
        splits=splits,
        captions_per_image=Distribution.of(Counter(len(record.captions) for record in dataset.records)),
        words_per_caption=statistics.words_per_caption,
        vocabulary=len(statistics.training_words),
        frequent_words=sum(count >= FREQUENT_COUNT for count in statistics.training_words.values()),
        unseen=statistics.unseen(),
        coverage=coverage,
        images_opened=open_images,
        problems=tuple(issues.problems),
        warnings=tuple(issues.warnings),
    )


# --- images ---


@dataclass(frozen=True)
class _OpenedImage:
    """An image file as it was opened."""

    digest: bytes = b""  # of its bytes
    thumbnail: np.ndarray | None = None
    error: str = ""  # why it cannot be read; empty if it can


def _examine_images(records: Sequence[CaptionRecord], issues: DatasetIssues, progress: Callable[[int], None]) -> None:
    missing = set(missing_files(records))  # which is a problem already
    by_path: dict[Path, CaptionRecord] = {}
    for record in records:
        if record.path not in missing:
            by_path.setdefault(record.path, record)
    progress(len(records) - len(by_path))
    unreadable: list[tuple[Path, str]] = []
    by_content: dict[bytes, list[CaptionRecord]] = {}
    thumbnails: list[np.ndarray] = []
    # Threads: reading and decoding, which take the time, happen outside the interpreter's lock.
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for record, image in zip(by_path.values(), pool.map(_open_image, by_path), strict=True):
            if image.thumbnail is None:
                unreadable.append((record.path, image.error))
            elif image.digest in by_content:
                by_content[image.digest].append(record)
            else:
                by_content[image.digest] = [record]
                thumbnails.append(image.thumbnail)
            progress(1)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C nobody waits for the rest
    issues.problems.extend(error for _, error in unreadable[:MAX_NAMED])
    more = [issues.display(path) for path, _ in unreadable[MAX_NAMED:]]
    if more:
        issues.problems.append(f"{counted(len(more), 'more image')} cannot be read: {summarise(more)}.")
    _report_equal_files(by_content.values(), issues)
    different = [members[0] for members in by_content.values()]
    _report_near_duplicates([(different[one], different[other]) for one, other in near_duplicates(thumbnails)], issues)


def _open_image(path: Path) -> _OpenedImage:
    try:
        content = read_photo(path)
        photo = decode_photo(content, str(path))
    except ImageError as error:
        return _OpenedImage(error=str(error))
    return _OpenedImage(hashlib.blake2b(content, digest_size=16).digest(), thumbnail(photo))


def _report_equal_files(by_content: Iterable[list[CaptionRecord]], issues: DatasetIssues) -> None:
    """Report images that are the same file, byte for byte, under different names."""
    repeated: list[str] = []
    shared: dict[tuple[str, str], list[str]] = {}
    for records in filter(lambda records: len(records) > 1, by_content):
        by_split: dict[str, CaptionRecord] = {}
        for record in records:
            name = issues.display(record.path)
            if record.split in by_split:
                repeated.append(f"{name} = {issues.display(by_split[record.split].path)}")
                continue
            for split, other in by_split.items():
                shared.setdefault((split, record.split), []).append(f"{issues.display(other.path)} = {name}")
            by_split[record.split] = record
    if repeated:
        issues.warnings.append(
            f"{counted(len(repeated), 'image repeats', 'images repeat')} another of the same split "
            f"byte for byte: {summarise(repeated)}."
        )
    issues.shared(shared, "image", "the same, byte for byte, in {} and {}")


def _report_near_duplicates(pairs: Iterable[tuple[CaptionRecord, CaptionRecord]], issues: DatasetIssues) -> None:
    """Report images that look the same though their files differ."""
    names: dict[tuple[str, str], list[str]] = {}
    for one, other in pairs:
        named = f"{issues.display(one.path)} = {issues.display(other.path)}"
        names.setdefault((one.split, other.split), []).append(named)
    for (one_split, other_split), copies in names.items():
        same = one_split == other_split
        where = f"another of {one_split}" if same else f"an image of {one_split}"
        subject = counted(len(copies), f"image of {other_split} looks", f"images of {other_split} look")
        reason = "it would count twice" if same else "what is scored must not have been trained on"
        issues.warnings.append(
            f"{subject} like {where}, saved again or resized: {summarise(copies)}; if they are the same photo, keep "
            f"one of each, for {reason}."
        )
