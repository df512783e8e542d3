"""What is wrong with a dataset, in sentences: what readers gather, and what every dataset is examined for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import summarise


@dataclass
class DatasetIssues:
    """Sentences about a dataset: problems make it unusable, warnings do not."""

    root: Path  # what the user named; paths in sentences start from there
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    drawn_in: Path | None = None  # where lists would choose the splits that were drawn

    @property
    def folder(self) -> Path:
        """The dataset's folder: what the user named, or where the file lies that they named."""
        return self.root if self.root.is_dir() else self.root.parent

    def dataset(self, form: str, records: Iterable[CaptionRecord]) -> CaptionDataset:
        """The dataset of a format, with its records and all that was found."""
        return CaptionDataset(
            self.root, form, tuple(records), tuple(self.problems), tuple(self.warnings), drawn_in=self.drawn_in
        )

    def shown(self, path: Path | str) -> str:
        """A path as sentences have it: from the dataset's folder where it lies in there."""
        shown = os.path.relpath(path, self.folder)
        return str(path) if shown.startswith("..") else shown


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "image"), counted(2000, "image"), counted(2, "box", "boxes")
    ('1 image', '2,000 images', '2 boxes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def examine(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Look for what no reader can see alone: missing files, images without captions, ids and files used twice.

    Costs one listing of each folder with images, not one look at each image.
    """
    if not records:
        if not issues.problems:
            issues.problems.append(f"{issues.root} holds no image with captions.")
        return
    bare = [record.image_id for record in records if not record.captions]
    if bare:
        issues.problems.append(
            f"{counted(len(bare), 'image has', 'images have')} no caption: {summarise(bare)}; write captions "
            "or take the images out, for nothing can be learned or scored from them."
        )
    missing = missing_files(records)
    if missing:
        issues.problems.append(
            f"{counted(len(missing), 'image file is', 'image files are')} missing: "
            f"{summarise(issues.shown(path) for path in missing)}; "
            "put the files there or take their captions out."
        )
    _examine_ids(records, issues)
    _examine_paths(records, issues)


def missing_files(records: Iterable[CaptionRecord]) -> list[Path]:
    """The paths of records that are not in their folders, each once, by listing each folder once."""
    folders: dict[str, frozenset[str]] = {}
    missing: dict[Path, None] = {}
    for record in records:
        folder, _, name = str(record.path).rpartition(os.sep)
        if folder not in folders:
            try:
                folders[folder] = frozenset(os.listdir(folder or "."))  # noqa: PTH208 (names are enough)
            except (OSError, ValueError):  # ValueError: no path has a null byte or half a character in it
                folders[folder] = frozenset()
        if name not in folders[folder]:
            missing[record.path] = None
    return list(missing)


def _examine_ids(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Problems of ids that stand for more than one record."""
    first: dict[str, CaptionRecord] = {}
    ambiguous: dict[str, None] = {}
    twice: dict[str, None] = {}
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        other = first.setdefault(record.image_id, record)
        if other is record:
            continue
        if other.path != record.path:
            ambiguous[record.image_id] = None
        elif other.split == record.split:
            twice[record.image_id] = None
        else:
            shared.setdefault((other.split, record.split), {})[record.image_id] = None
    if ambiguous:
        issues.problems.append(
            f"{counted(len(ambiguous), 'id stands', 'ids stand')} for different images: "
            f"{summarise(ambiguous)}; give every image of the dataset an id of its own, across all splits."
        )
    if twice:
        issues.problems.append(
            f"{counted(len(twice), 'image is', 'images are')} listed twice in one split: "
            f"{summarise(twice)}; keep one entry of each."
        )
    for (one, other_split), ids in shared.items():
        issues.problems.append(
            f"{counted(len(ids), 'image is', 'images are')} in both {one} and {other_split}: "
            f"{summarise(ids)}; what is scored must not have been trained on, so keep each in one split."
        )


def _examine_paths(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Problems and warnings of files that go by more than one id."""
    first: dict[Path, CaptionRecord] = {}
    again: dict[str, None] = {}
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        other = first.setdefault(record.path, record)
        if other.image_id == record.image_id:
            continue
        name = issues.shown(record.path)
        if other.split == record.split:
            again[name] = None
        else:
            shared.setdefault((other.split, record.split), {})[name] = None
    if again:
        issues.warnings.append(
            f"{counted(len(again), 'file is', 'files are')} listed under more than one id in the same split: "
            f"{summarise(again)}; their captions would count as those of different images."
        )
    for (one, other_split), names in shared.items():
        issues.problems.append(
            f"{counted(len(names), 'file is', 'files are')} in both {one} and {other_split} under different "
            f"ids: {summarise(names)}; what is scored must not have been trained on, so keep each in one split."
        )
