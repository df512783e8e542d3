"""Rows of images with captions, splits and ids, gathered to records: of tables, JSON lines and Flickr's files."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from showtell.datasets.image_files import ImageFiles
from showtell.datasets.issues import DatasetIssues, counted
from showtell.datasets.records import CaptionRecord
from showtell.datasets.source_files import as_text
from showtell.datasets.split_lists import choose_splits
from showtell.datasets.splits import split_name, split_of_file
from showtell.errors import summarise
from showtell.images.photo_files import is_image_file

# Names of columns for images, captions, splits and ids, the most likely first; case, spaces and hyphens are ignored.
# image_id is the file only where no other column is.
IMAGE = (
    *("image", "image_file", "image_filename", "image_file_name", "image_path", "image_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "img", "photo", "picture", "image_id"),
)
CAPTION = ("caption", "sentence", "text", "description", "comment")
SPLIT = ("split", "subset", "partition")
ID = ("image_id", "imageid", "img_id", "id")


@dataclass(frozen=True)
class Columns:
    """The columns of a table, or keys of an object, by what they hold; indices from 0."""

    count: int
    image: int
    captions: tuple[int, ...]
    split: int | None
    id: int | None

    @staticmethod
    def of(names: Sequence[str]) -> Columns | None:
        """Recognise columns by their names; None if none is for images or none for captions."""
        names = [re.sub(r"[\s.-]+", "_", name.strip().lower()) for name in names]
        image, captions = _first(names, IMAGE), _caption_columns(names)
        if image is None or not captions:
            return None
        return Columns(len(names), image, captions, _first(names, SPLIT), _first(names, ID))


def _first(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _caption_columns(names: Sequence[str]) -> tuple[int, ...]:
    """The indices of caption, captions, caption_1, caption2 and so on, of the first such word that occurs."""
    for word in CAPTION:
        pattern = re.compile(rf"{word}s?_?[0-9]*")
        columns = tuple(index for index, name in enumerate(names) if pattern.fullmatch(name))
        if columns:
            return columns
    return ()


@dataclass
class _Image:
    """The captions, splits and ids of one image in a file."""

    captions: list[str] = field(default_factory=list)
    splits: dict[str, None] = field(default_factory=dict)  # an ordered set, as are the ids
    ids: dict[str, None] = field(default_factory=dict)


class CaptionRows:
    """Gathers the rows of a file by image, and makes records of them.

    Args:
        file: that is read.
        issues: gets problems and warnings.
        location: how sentences name one row and several.
    """

    def __init__(self, file: Path, issues: DatasetIssues, location: tuple[str, str] = ("on line", "on lines")) -> None:
        self._file = file
        self._shown = issues.display(file)
        self._issues = issues
        self._location = location
        self._images: dict[str, _Image] = {}
        self._nameless: list[int] = []
        self._without_caption: list[tuple[int, _Image]] = []

    def add(self, number: int, name: str, captions: Sequence[str], split: str = "", image_id: str = "") -> None:
        """Add a row by its number in the file; empty texts are ignored."""
        captions = [caption for caption in captions if caption.strip()]
        if not name.strip():
            self._nameless.append(number)
            return
        image = self._images.setdefault(posixpath.normpath(name.strip().replace("\\", "/")), _Image())
        image.captions.extend(captions)
        if not captions:
            self._without_caption.append((number, image))
        for text, known in ((split, image.splits), (image_id, image.ids)):
            if text.strip():
                known[text.strip()] = None

    def locate(self, numbers: Sequence[int]) -> str:
        """Some rows of the file, as the end of a sentence.

        >>> CaptionRows(Path("captions.csv"), DatasetIssues(Path("."))).locate([2, 4])
        'on lines 2, 4'
        """
        return f"{self._location[len(numbers) > 1]} {summarise(numbers)}"

    def records(self, folders: Sequence[Path], remedy: str) -> list[CaptionRecord]:
        """The records of the images.

        Args:
            folders: where the images may lie, the most likely first.
            remedy: what would choose splits, for the warning about those that were drawn.
        """
        if self._nameless:
            self._issues.problems.append(f"{self._shown} names no image {self.locate(self._nameless)}.")
        empty = [number for number, image in self._without_caption if image.captions]
        if empty:
            self._issues.warnings.append(f"{self._shown} has no caption {self.locate(empty)}, left out.")
        ids = self._ids()
        splits = self._splits(ids, remedy)
        files = ImageFiles(folders)
        used: dict[str, set[str]] = {}  # file names by folder
        records = []
        for name, image in self._images.items():
            path = files.find([name])
            if path is None:
                continue
            used.setdefault(str(path.parent), set()).add(path.name)
            if name in splits:
                records.append(CaptionRecord(ids.get(name) or as_text(name), path, splits[name], tuple(image.captions)))
        files.report(self._issues, self._shown)
        self._report_unused(files, used)
        return records

    def _report_unused(self, files: ImageFiles, used: dict[str, set[str]]) -> None:
        unused = [
            self._issues.display(os.path.join(folder, name))  # noqa: PTH118 (Path is slow here)
            for folder, names in used.items()
            for name in sorted(files.listing(folder) - names)
            if is_image_file(name)
        ]
        if unused:
            self._issues.warnings.append(
                f"{counted(len(unused), 'image')} beside the others {'is' if len(unused) == 1 else 'are'} not in "
                f"{self._shown} and left out: {summarise(unused)}."
            )

    def _splits(self, ids: dict[str, str], remedy: str) -> dict[str, str]:
        """The split of each image: from its rows, else the file's name, else lists beside it, else drawn by name."""
        file_split = split_of_file(self._file.stem)
        if not any(image.splits for image in self._images.values()):
            if file_split:
                return dict.fromkeys(self._images, file_split)
            named = {name: (name, *([ids[name]] if name in ids else [])) for name in self._images}
            return choose_splits(named, [self._file.parent, self._issues.folder], self._issues, self._shown, remedy)
        splits, ambiguous, missing = {}, [], []
        for name, image in self._images.items():
            names = list(dict.fromkeys(map(split_name, image.splits)))
            if len(names) > 1:
                ambiguous.append(f"{name} ({', '.join(names)})")
            elif not names:
                missing.append(name)
            splits[name] = names[0] if names else ""
        puts = "{file} puts {count} in more than one split: {items}."
        self._issues.problem(ambiguous, puts, "image", file=self._shown)
        self._report_without(missing, "split")
        return splits

    def _ids(self) -> dict[str, str]:
        """The id of each image if the file has ids; empty if these number the captions instead."""
        if not any(image.ids for image in self._images.values()):
            return {}
        if any(len(image.ids) > 1 for image in self._images.values()):
            self._issues.warnings.append(
                f"The ids in {self._shown} number captions rather than images, so the images go by their file names."
            )
            return {}
        self._report_without([name for name, image in self._images.items() if not image.ids], "id")
        return {name: next(iter(image.ids)) for name, image in self._images.items() if image.ids}

    def _report_without(self, images: Sequence[str], what: str) -> None:
        sentence = "{file} gives {count} no {what}, though others have one: {items}."
        self._issues.problem(images, sentence, "image", file=self._shown, what=what)
