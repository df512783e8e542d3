"""Problems and warnings of a dataset, in sentences: those that readers report, and the checks of every dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from showtell.datasets.image_files import names_in
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import DataError, summarise
from showtell.images.photo_files import is_image_file
from showtell.text.tokenizer import UNSPACED, is_unspaced

_SAMPLE_SIZE = 1000  # images that tell how the captions of all are written


@dataclass
class DatasetIssues:
    """Sentences about a dataset: problems make it unusable, warnings do not."""

    root: Path  # what the user named; paths in sentences start from there
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    has_drawn_splits: bool = False
    used: dict[str, set[str]] = field(default_factory=dict)  # names of image files that have a row, by their folder

    @property
    def folder(self) -> Path:
        """The dataset's folder: what the user named, or the folder of the file that they named."""
        return self.root if self.root.is_dir() else self.root.parent

    def problem(self, items: Iterable[object], noun: str, sentence: str, remedy: str = "") -> None:
        """Report what makes the dataset unusable, if there are items; `noun` is as in "image is|images are"."""
        self.problems.extend(_sentences(items, noun, sentence, remedy))

    def warning(self, items: Iterable[object], noun: str, sentence: str, remedy: str = "") -> None:
        """Report what a dataset can be used in spite of; see `problem`."""
        self.warnings.extend(_sentences(items, noun, sentence, remedy))

    def shared(self, items: Mapping[tuple[str, str], Iterable[str]], noun: str, sentence: str) -> None:
        """Report what two splits share, by these splits, for which the sentence has {}: "in both {} and {}"."""
        for splits, listed in items.items():
            keep = "what is scored must not have been trained on, so keep each in one split"
            self.problem(listed, noun, sentence.format(*splits), keep)

    def unused(self) -> None:
        """Warn of image files that lie beside those of the dataset and are not in it."""
        others = [
            self.display(os.path.join(folder, name))  # noqa: PTH118 (Path is slow here)
            for folder, names in self.used.items()
            for name in sorted(names_in(folder) - names)
            if is_image_file(name)
        ]
        self.warning(others, "image has|images have", "no captions, unlike others in the folder, left out")

    def dataset(self, form: str, records: Iterable[CaptionRecord], name: str = "") -> CaptionDataset:
        """The dataset of a format, with its records, problems and warnings."""
        problems, warnings = tuple(self.problems), tuple(self.warnings)
        return CaptionDataset(self.root, form, tuple(records), problems, warnings, name, self.has_drawn_splits)

    def collect(self, files: Iterable[Path], read_file: FileReader) -> list[CaptionRecord]:
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


FileReader = Callable[[Path, DatasetIssues], Iterable[CaptionRecord]]


def _sentences(items: Iterable[object], noun: str, sentence: str, remedy: str) -> list[str]:
    listed = list(items)
    count = counted(len(listed), *noun.split("|"))
    return [f"{count} {sentence}: {summarise(listed)}{remedy and f'; {remedy}'}."] if listed else []


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 image", "2,000 images", "2 boxes"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def examine(records: Sequence[CaptionRecord], issues: DatasetIssues, *, with_photos: bool = True) -> None:
    """Find missing files, images without captions, ids and files used twice, by one listing of each folder."""
    if not records and not issues.problems:
        issues.problems.append(f"{issues.root} holds no image with captions.")
    useless = "write captions or take the images out, for nothing can be learned or scored from them"
    without = [record.image_id for record in records if not record.captions]
    issues.problem(without, "image has|images have", "no caption", useless)
    equal = (one.image_id for one in records if 1 < len(one.captions) >= 2 * len(set(map(str.strip, one.captions))))
    issues.warning(equal, "image has|images have", "the same caption again and again", "each counts as one of its own")
    if is_unspaced(caption for record in records[:_SAMPLE_SIZE] for caption in record.captions):
        issues.warnings.append(UNSPACED)
    missing = map(issues.display, missing_files(records) if with_photos else ())
    put = "put the files there or take their captions out"
    issues.problem(missing, "image file is|image files are", "missing", put)
    by_id: dict[str, CaptionRecord] = {}
    by_path: dict[Path, CaptionRecord] = {}
    ambiguous: dict[str, None] = {}
    twice: dict[str, None] = {}
    again: dict[str, None] = {}
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        same_id, same_file = by_id.setdefault(record.image_id, record), by_path.setdefault(record.path, record)
        if same_id is not record and same_id.path != record.path:
            ambiguous[record.image_id] = None
        elif same_file.split != record.split:
            shared.setdefault((same_file.split, record.split), {})[record.image_id] = None
        elif same_id is not record:
            twice[record.image_id] = None
        elif same_file is not record:
            again[issues.display(record.path)] = None
    own = "give every image of the dataset an id of its own, across all splits"
    issues.problem(ambiguous, "id stands|ids stand", "for different images", own)
    issues.problem(twice, "image is|images are", "listed twice in one split", "keep one entry of each")
    issues.shared(shared, "image is|images are", "in both {} and {}")
    counts = "their captions would count as those of different images"
    issues.warning(again, "file is|files are", "listed under more than one id in the same split", counts)


def missing_files(records: Iterable[CaptionRecord]) -> list[Path]:
    """The paths of records that are not in their folders, each once, by listing each folder once."""
    listing = cache(names_in)
    missing: dict[Path, None] = {}
    for record in records:
        folder, _, name = str(record.path).rpartition(os.sep)
        if name not in listing(folder):
            missing[record.path] = None
    return list(missing)
