"""The examination behind `showtell data check`: every image opened, every count made, every oddity a sentence."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from showtell.datasets.caption_statistics import USUAL_COUNT, Fit, Spread, Wording
from showtell.datasets.issues import DatasetIssues, counted, missing_files
from showtell.datasets.near_duplicates import near_copies, thumbnail
from showtell.datasets.published import compare_with_published
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_rank
from showtell.errors import ImageError, summarise
from showtell.images.photo import decode_photo, read_photo
from showtell.processes import usable_cores
from showtell.text.vocabulary import Vocabulary

MOST_NAMED = 10  # unreadable images that get a sentence of their own


@dataclass(frozen=True)
class Report:
    """What an examination of a dataset found."""

    format: str
    splits: dict[str, tuple[int, int]]  # images and captions of each split: train, val, test, then others
    captions_per_image: Spread | None
    words_per_caption: Spread | None  # words as the tokenizer makes them, punctuation left out
    vocabulary: int  # different words of train; of all splits where there is no train
    usual_vocabulary: int  # those of them that occur five times or more
    unseen: dict[str, float]  # of each split but train, the share of its words that train never has
    fit: Fit | None  # None where the captions were not held against a checkpoint
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
        against = {} if self.fit is None else {"against": asdict(self.fit)}
        return {
            "format": self.format,
            "images": self.images,
            "captions": self.captions,
            "splits": {name: images for name, (images, _) in self.splits.items()},
            "captions_per_image": per_image and per_image.as_json(),
            "words_per_caption": per_caption and per_caption.as_json(),
            "vocabulary": {"words": self.vocabulary, "five_times": self.usual_vocabulary, "unseen": self.unseen},
            **against,
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
) -> Report:
    """Examine a dataset: open every image, compare their contents, count splits, captions and words.

    Args:
        dataset: as `read_dataset` found it; its problems and warnings come first in the report.
        open_images: false looks at no image but to see that its file is there.
        vocabulary: of a checkpoint that the captions are held against; None for none.
        max_length: words that this checkpoint says at most.
        progress: called with the number of images opened since the last call, as many in all as there are records.
    """
    issues = DatasetIssues(dataset.root, list(dataset.problems), list(dataset.warnings))
    images = dataset.splits
    captions: Counter[str] = Counter()
    for record in dataset.records:
        captions[record.split] += len(record.captions)
    splits = {name: (images[name], captions[name]) for name in sorted(images, key=split_rank)}
    if splits and "train" not in splits:
        issues.warnings.append(
            f"There is no split train, only {', '.join(splits)}: nothing can be learned from this, only scored."
        )
    issues.warnings.extend(compare_with_published(dataset.name, images, dataset.restval))
    caption_statistics = Wording.of(dataset.records)
    fit = None if vocabulary is None else caption_statistics.fit(vocabulary, max_length)
    issues.warnings.extend(fit.warnings() if fit else ())
    if open_images:
        _examine_images(dataset.records, issues, progress)
    known = caption_statistics.known
    return Report(
        format=dataset.format,
        splits=splits,
        captions_per_image=Spread.of(Counter(len(record.captions) for record in dataset.records)),
        words_per_caption=caption_statistics.words_per_caption,
        vocabulary=len(known),
        usual_vocabulary=sum(count >= USUAL_COUNT for count in known.values()),
        unseen=caption_statistics.unseen(),
        fit=fit,
        images_opened=open_images,
        problems=tuple(issues.problems),
        warnings=tuple(issues.warnings),
    )


# --- images ---


@dataclass(frozen=True)
class _Look:
    """What was seen of an image file."""

    digest: bytes = b""  # of its bytes
    thumbnail: np.ndarray | None = None
    error: str = ""  # what is wrong with it, empty if nothing is


def _examine_images(records: Sequence[CaptionRecord], issues: DatasetIssues, progress: Callable[[int], None]) -> None:
    missing = set(missing_files(records))  # a problem already
    first: dict[Path, CaptionRecord] = {}
    for record in records:
        if record.path not in missing:
            first.setdefault(record.path, record)
    progress(len(records) - len(first))
    unreadable: list[tuple[Path, str]] = []
    alike: dict[bytes, list[CaptionRecord]] = {}
    thumbnails: list[np.ndarray] = []
    # Threads: what takes time, reading and decoding, happens outside the interpreter's lock.
    pool = ThreadPoolExecutor(usable_cores())
    try:
        for record, look in zip(first.values(), pool.map(_look_at, first), strict=True):
            if look.thumbnail is None:
                unreadable.append((record.path, look.error))
            elif look.digest in alike:
                alike[look.digest].append(record)
            else:
                alike[look.digest] = [record]
                thumbnails.append(look.thumbnail)
            progress(1)
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C nobody waits for the rest
    issues.problems.extend(error for _, error in unreadable[:MOST_NAMED])
    more = [issues.shown(path) for path, _ in unreadable[MOST_NAMED:]]
    if more:
        issues.problems.append(f"{counted(len(more), 'more image')} cannot be read: {summarise(more)}.")
    _examine_contents(alike.values(), issues)
    different = [records[0] for records in alike.values()]
    _examine_looks([(different[one], different[other]) for one, other in near_copies(thumbnails)], issues)


def _look_at(path: Path) -> _Look:
    try:
        content = read_photo(path)
        photo = decode_photo(content, str(path))
    except ImageError as error:
        return _Look(error=str(error))
    return _Look(hashlib.blake2b(content, digest_size=16).digest(), thumbnail(photo))


def _examine_contents(alike: Iterable[list[CaptionRecord]], issues: DatasetIssues) -> None:
    """Name images that are the same file, byte for byte, under different names."""
    repeated: list[str] = []
    shared: dict[tuple[str, str], list[str]] = {}
    for records in filter(lambda records: len(records) > 1, alike):
        of_split: dict[str, CaptionRecord] = {}
        for record in records:
            name = issues.shown(record.path)
            if record.split in of_split:
                repeated.append(f"{name} = {issues.shown(of_split[record.split].path)}")
                continue
            for split, other in of_split.items():
                shared.setdefault((split, record.split), []).append(f"{issues.shown(other.path)} = {name}")
            of_split[record.split] = record
    if repeated:
        issues.warnings.append(
            f"{counted(len(repeated), 'image repeats', 'images repeat')} another of the same split "
            f"byte for byte: {summarise(repeated)}."
        )
    for (one, other_split), names in shared.items():
        issues.problems.append(
            f"{counted(len(names), 'image is', 'images are')} the same, byte for byte, in {one} and "
            f"{other_split}: {summarise(names)}; what is scored must not have been trained on."
        )


def _examine_looks(pairs: Iterable[tuple[CaptionRecord, CaptionRecord]], issues: DatasetIssues) -> None:
    """Name images that look the same though their files differ."""
    names: dict[tuple[str, str], list[str]] = {}
    for one, other in pairs:
        named = f"{issues.shown(one.path)} = {issues.shown(other.path)}"
        names.setdefault((one.split, other.split), []).append(named)
    for (one_split, other_split), found in names.items():
        same = one_split == other_split
        where = f"another of {one_split}" if same else f"an image of {one_split}"
        subject = counted(len(found), f"image of {other_split} looks", f"images of {other_split} look")
        reason = "it would count twice" if same else "what is scored must not have been trained on"
        issues.warnings.append(
            f"{subject} like {where}, saved again or resized: {summarise(found)}; if they are the same photo, keep one "
            f"of each, for {reason}."
        )
