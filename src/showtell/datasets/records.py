"""Records of a dataset: each image with its captions, split, boxes and groundings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, Self, overload

from showtell.datasets.splits import UNCHECKED, hash_number
from showtell.errors import DataError, nearest, summarise


@dataclass(frozen=True, slots=True)
class Box:
    """One labelled object of an image, in pixels of the image as stored."""

    id: int  # of the annotation, unique in the dataset
    x: float  # left edge
    y: float  # upper edge
    width: float
    height: float
    category: str


@dataclass(frozen=True, slots=True)
class Grounding:
    """Which words of a caption name which boxes: words[first:end] of `caption.split()`."""

    first: int
    end: int
    boxes: tuple[int, ...]  # Box.id of each object that the words name


@dataclass(frozen=True, slots=True)
class CaptionRecord:
    """One image with its captions and annotations."""

    image_id: str  # as in the dataset, integers as decimal text
    path: Path
    split: str  # "train", "val", "test" or any other name
    captions: tuple[str, ...]  # as written, none to any number
    boxes: tuple[Box, ...] | None = None  # None where the dataset has no boxes at all
    groundings: tuple[tuple[Grounding, ...], ...] | None = None  # one tuple per caption
    empty: int = 0  # captions without text, left out of `captions`: nothing to learn, but references of a score
    part: str = ""  # of a dataset of several, with which `image_id` begins

    def limited(self, captions: int) -> CaptionRecord:
        """The same image with at most this many of its captions, the first ones."""
        groundings = None if self.groundings is None else self.groundings[:captions]
        return replace(self, captions=self.captions[:captions], groundings=groundings)


@dataclass(frozen=True, repr=False)
class CaptionDataset(Sequence[CaptionRecord]):
    """Images with captions, in splits: `dataset["test"]` is one of them, and a dataset of its own.

    It is a sequence of records: `len(dataset)` images, `dataset[0]`, `for record in dataset`. A slice is a dataset.
    """

    root: Path  # the folder or the file that the user named; of several "[a,b]"
    format: str  # which reader recognised it
    records: tuple[CaptionRecord, ...]
    problems: tuple[str, ...] = ()  # sentences; a dataset with any is unusable
    warnings: tuple[str, ...] = ()  # sentences; a dataset with these can be used
    name: str = ""  # from its file, as Karpathy's have one: coco, flickr8k, flickr30k
    has_drawn_splits: bool = False  # for it gives none
    parts: Mapping[str, Path] = field(default_factory=dict)  # of a dataset of several: their names and roots
    whole: CaptionDataset | None = field(default=None, compare=False)  # that this is a part of; None: of none

    def __repr__(self) -> str:
        captions = sum(len(record.captions) for record in self.records)
        splits = ", ".join(f"{name} {count}" for name, count in self.splits.items()) or "no splits"
        problems = f", {len(self.problems)} problems" if self.problems else ""
        return (
            f"<CaptionDataset {self.root} ({self.format}): {len(self.records)} images, {captions} captions; "
            f"{splits}{problems}>"
        )

    @property
    def splits(self) -> dict[str, int]:
        """Number of images in each split, in the order in which the splits appear."""
        return dict(Counter(record.split for record in self.records))

    def __len__(self) -> int:
        return len(self.records)

    def __contains__(self, value: object) -> bool:
        return value in self.splits if isinstance(value, str) else value in self.records

    @overload
    def __getitem__(self, key: int) -> CaptionRecord: ...
    @overload
    def __getitem__(self, key: str | tuple[str, ...] | slice) -> Self: ...
    def __getitem__(self, key: str | tuple[str, ...] | int | slice) -> CaptionRecord | Self:
        """A split by its name (a DataError lists those it has), several by theirs, a record, or a part as a slice."""
        if isinstance(key, str):
            return self._part(tuple(record for record in self.records if record.split == key) or self._refuse(key))
        if isinstance(key, tuple):
            return self._part(tuple(record for name in key for record in self[name]))
        return self._part(self.records[key]) if isinstance(key, slice) else self.records[key]

    def _part(self, records: tuple[CaptionRecord, ...]) -> Self:
        return replace(self, records=records, whole=self.whole or self)

    def _refuse(self, name: str) -> NoReturn:
        if not self.records:
            raise DataError(f"{self.root} has no captions to use: {summarise(self.problems, 1)}")
        if not (unchecked := self.splits.get(UNCHECKED, 0)):
            why = f" What was left out says: showtell data check {self.root}" if self.warnings else ""
            raise DataError(f'{self.root} has no split "{name}": {nearest(name, self.splits)}.{why}')
        remedies = {
            "corrections": check_on_page(self.root),
            "xmp": "correct descriptions in the sidecars; those that a person edited are trained on",
        }
        remedy = remedies.get(self.format, f'write "{name}" into the column split of each caption that is right')
        raise DataError(f'{self.root} has no split "{name}", and {unchecked} images in split "{UNCHECKED}": {remedy}.')

    def limited(self, images: int | None = None, captions: int | None = None) -> Self:
        """A part of the dataset, the same each time; a larger one holds the smaller.

        Args:
            images: at most this many of each split, drawn by a hash of their ids, in the dataset's order; None: all.
            captions: at most this many of each image, the first ones, as Xu et al. 2015 keep 5; None: all.
        """
        records = self.records
        if images is not None:
            by_split: dict[str, list[CaptionRecord]] = {}
            for record in sorted(records, key=lambda record: hash_number(record.image_id)):
                by_split.setdefault(record.split, []).append(record)
            chosen = {id(record) for own in by_split.values() for record in own[:images]}
            records = tuple(record for record in records if id(record) in chosen)
        if captions is not None:
            records = tuple(record.limited(captions) for record in records)
        return self._part(records)


def check_on_page(path: Path) -> str:
    """How captions of a folder of corrections, or of the database in it, get into a split that can be trained on."""
    folder = path if path.is_dir() else path.parent
    return f"accept or correct captions on the page of: showtell serve CHECKPOINT --corrections {folder}"
