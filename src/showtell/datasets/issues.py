"""Problems and warnings of a dataset, in sentences: those that readers report, and the checks of every dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.source_files import names_in
from showtell.errors import DataError, summarise

_SCORED = "what is scored must not have been trained on"


@dataclass
class DatasetIssues:
    """Sentences about a dataset: problems make it unusable, warnings do not."""

    root: Path  # what the user named; paths in sentences start from there
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    split_lists_folder: Path | None = None  # where lists would choose the splits that were drawn

    @property
    def folder(self) -> Path:
        """The dataset's folder: what the user named, or the folder of the file that they named."""
        return self.root if self.root.is_dir() else self.root.parent

    def problem(self, items: Iterable[object], sentence: str, *noun: str, **names: str) -> None:
        """Report what makes the dataset unusable; nothing without items.

        Args:
            items: what is concerned.
            sentence: with {count} for the number of items, {items} for the first of them, and {names}.
            noun: of the count, for one item and for several: "image is", "images are".
            names: further texts for the sentence.
        """
        self._add(self.problems, items, sentence, noun, names)

    def warning(self, items: Iterable[object], sentence: str, *noun: str, **names: str) -> None:
        """Report what a dataset can be used in spite of; see `problem`."""
        self._add(self.warnings, items, sentence, noun, names)

    @staticmethod
    def _add(
        sentences: list[str], items: Iterable[object], sentence: str, noun: Sequence[str], names: Mapping[str, str]
    ) -> None:
        listed = list(items)
        if listed:
            count = counted(len(listed), *noun) if noun else str(len(listed))
            sentences.append(sentence.format(count=count, items=summarise(listed), **names))

    def shared(self, names: Mapping[tuple[str, str], Iterable[str]], noun: str, sharing: str, remedy: str = "") -> None:
        """Report what occurs in two splits.

        Args:
            names: what the two splits share.
            noun: what it is: "image".
            sharing: how it is shared, with {} for the two splits: "in both {} and {}".
            remedy: what to do about it, if the sentence does not end with the reason.
        """
        for splits, listed in names.items():
            where = sharing.format(*splits)
            sentence = "{count} {where}: {items}; {scored}{remedy}."
            self.problem(listed, sentence, f"{noun} is", f"{noun}s are", where=where, scored=_SCORED, remedy=remedy)

    def dataset(self, form: str, records: Iterable[CaptionRecord], unchecked_remedy: str = "") -> CaptionDataset:
        """The dataset of a format, with its records, problems and warnings; see `CaptionDataset.unchecked_remedy`."""
        return CaptionDataset(
            self.root,
            form,
            tuple(records),
            tuple(self.problems),
            tuple(self.warnings),
            split_lists_folder=self.split_lists_folder,
            unchecked_remedy=unchecked_remedy,
        )

    def collect(
        self, files: Iterable[Path], read_file: Callable[[Path, DatasetIssues], Iterable[CaptionRecord]]
    ) -> list[CaptionRecord]:
        """The records of all files that can be read; that one cannot is a problem."""
        records: list[CaptionRecord] = []
        for file in files:
            try:
                records.extend(read_file(file, self))
            except DataError as error:
                self.problems.append(str(error))
        return records

    def display(self, path: Path | str) -> str:
        """A path as sentences have it: relative to the dataset's folder if it lies there."""
        relative = os.path.relpath(path, self.folder)
        return str(path) if relative.startswith("..") else relative


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "image"), counted(2000, "image"), counted(2, "box", "boxes")
    ('1 image', '2,000 images', '2 boxes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def examine(records: Sequence[CaptionRecord], issues: DatasetIssues, *, with_photos: bool = True) -> None:
    """Check what no reader can: missing files, images without captions, ids and files used twice.

    Costs one listing of each folder with images, not one look at each image.
    """
    if not records and not issues.problems:
        issues.problems.append(f"{issues.root} holds no image with captions.")
    issues.problem(
        [record.image_id for record in records if not record.captions],
        "{count} no caption: {items}; write captions or take the images out, for nothing can be learned or scored from "
        "them.",
        *("image has", "images have"),
    )
    issues.problem(
        [issues.display(path) for path in (missing_files(records) if with_photos else ())],
        "{count} missing: {items}; put the files there or take their captions out.",
        *("image file is", "image files are"),
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
            folders[folder] = names_in(folder)
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
    issues.problem(
        ambiguous,
        "{count} for different images: {items}; give every image of the dataset an id of its own, across all splits.",
        *("id stands", "ids stand"),
    )
    issues.problem(
        twice, "{count} listed twice in one split: {items}; keep one entry of each.", "image is", "images are"
    )
    issues.shared(shared, "image", "in both {} and {}", ", so keep each in one split")


def _examine_paths(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Problems and warnings of files that go by more than one id."""
    first: dict[Path, CaptionRecord] = {}
    again: dict[str, None] = {}
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        other = first.setdefault(record.path, record)
        if other.image_id != record.image_id:
            same = other.split == record.split
            names = again if same else shared.setdefault((other.split, record.split), {})
            names[issues.display(record.path)] = None
    issues.warning(
        again,
        "{count} listed under more than one id in the same split: {items}; their captions would count as those of "
        "different images.",
        *("file is", "files are"),
    )
    issues.shared(shared, "file", "in both {} and {} under different ids", ", so keep each in one split")
