"""Problems and warnings of a dataset, in sentences: those that readers report, and the checks of every dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.source_files import names_in
from showtell.errors import DataError, summarise

_ONE_SPLIT = ", so keep each in one split"


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

    def add_unusable(
        self, numbers: Sequence[int], file: Path, section: str, requirement: str, *, skipped: bool = False
    ) -> None:
        """Report the entries of a list in a JSON file that lack something.

        Args:
            numbers: of the entries, from 1; without any nothing is reported.
            file: that has the list.
            section: the key of the list.
            requirement: what each entry should have.
            skipped: whether the dataset can do without them, which makes this a warning.
        """
        if numbers:
            count = counted(len(numbers), "entry", "entries")
            skipping = ", left out" if skipped else ""
            (self.warnings if skipped else self.problems).append(
                f'{self.display(file)} has {count} of "{section}" without {requirement}{skipping}: '
                f"number {summarise(numbers)}."
            )

    def add_shared(
        self, names: Mapping[tuple[str, str], Iterable[str]], subject: tuple[str, str], sharing: str, remedy: str = ""
    ) -> None:
        """Report what occurs in two splits.

        Args:
            names: what the two splits share.
            subject: its noun and verb, for one and for several: "image is", "images are".
            sharing: how it is shared, with {} for the two splits: "in both {} and {}".
            remedy: what to do about it, if the sentence does not end with the reason.
        """
        for splits, shared in names.items():
            listed = list(shared)
            self.problems.append(
                f"{counted(len(listed), *subject)} {sharing.format(*splits)}: {summarise(listed)}; what is scored must "
                f"not have been trained on{remedy}."
            )


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> counted(1, "image"), counted(2000, "image"), counted(2, "box", "boxes")
    ('1 image', '2,000 images', '2 boxes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def examine(records: Sequence[CaptionRecord], issues: DatasetIssues, *, with_photos: bool = True) -> None:
    """Check what no reader can: missing files, images without captions, invalid text, ids and files used twice.

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
    missing = missing_files(records) if with_photos else []
    if missing:
        issues.problems.append(
            f"{counted(len(missing), 'image file is', 'image files are')} missing: "
            f"{summarise(issues.display(path) for path in missing)}; "
            "put the files there or take their captions out."
        )
    _examine_text(records, issues)
    _examine_ids(records, issues)
    _examine_paths(records, issues)


def _examine_text(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Problems of ids, captions, splits and categories that are not valid text, as JSON can spell it (\\ud800)."""
    invalid: dict[str, dict[str, None]] = {}
    for record in records:
        if "".join((record.image_id, record.split, *record.captions)).isascii():  # most are: no closer look
            continue
        for kind, texts in (("id", [record.image_id]), ("split", [record.split]), ("caption", record.captions)):
            if not all(map(is_valid_text, texts)):
                invalid.setdefault(kind, {})[record.image_id] = None
    categories = {box.category: record.image_id for record in reversed(records) for box in record.boxes or ()}
    invalid["category"] = {image_id: None for name, image_id in categories.items() if not is_valid_text(name)}
    for kind, image_ids in invalid.items():
        if image_ids:
            issues.problems.append(
                f"{counted(len(image_ids), 'image has', 'images have')} half a character (a lone surrogate) in the "
                f"{kind}: {summarise(image_ids)}; write it anew as UTF-8."
            )


def is_valid_text(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    issues.add_shared(shared, ("image is", "images are"), "in both {} and {}", _ONE_SPLIT)


def _examine_paths(records: Sequence[CaptionRecord], issues: DatasetIssues) -> None:
    """Problems and warnings of files that go by more than one id."""
    first: dict[Path, CaptionRecord] = {}
    again: dict[str, None] = {}
    shared: dict[tuple[str, str], dict[str, None]] = {}
    for record in records:
        other = first.setdefault(record.path, record)
        if other.image_id == record.image_id:
            continue
        name = issues.display(record.path)
        if other.split == record.split:
            again[name] = None
        else:
            shared.setdefault((other.split, record.split), {})[name] = None
    if again:
        issues.warnings.append(
            f"{counted(len(again), 'file is', 'files are')} listed under more than one id in the same split: "
            f"{summarise(again)}; their captions would count as those of different images."
        )
    issues.add_shared(shared, ("file is", "files are"), "in both {} and {} under different ids", _ONE_SPLIT)
