"""Entries: what the files of a dataset say of each image, gathered from rows and made to records."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from showtell.datasets.image_files import ImageFiles, as_text, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.splits import choose_splits, split_name, split_of_file
from showtell.errors import summarise

# Names of columns for images, captions, splits and ids, the most likely first; case, spaces and hyphens are ignored.
# image_id is the file only where no other column is.
IMAGE = (
    *("image", "image_file", "image_filename", "image_file_name", "image_path", "image_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "img", "photo", "picture", "image_id"),
)
CAPTION = ("caption", "sentence", "text", "description", "comment")
SPLIT = ("split", "subset", "partition")
ID = ("image_id", "imageid", "img_id", "id")


@dataclass
class Entry:
    """What a file says of one image."""

    names: Sequence[str]  # possible names of its file, the most likely first
    captions: list[str] = field(default_factory=list)
    splits: dict[str, None] = field(default_factory=dict)  # an ordered set, as are the ids; more than one is a mistake
    ids: dict[str, None] = field(default_factory=dict)  # without any, the image goes by its name
    boxes: tuple[Box, ...] | None = None
    groundings: tuple[tuple[Grounding, ...], ...] | None = None  # one tuple per caption


def make_records(
    file: Path, entries: Sequence[Entry], issues: DatasetIssues, folders: Iterable[Path], remedy: str
) -> list[CaptionRecord]:
    """The records of a file's entries, without their empty captions.

    The images lie in one of the folders, the most likely first. `remedy` is what would choose splits, for the warning
    about those that were drawn.
    """
    splits, files, empty, records = _splits(file, entries, issues, remedy), ImageFiles(folders), [], []
    for index, entry in enumerate(entries):
        path = files.find(entry.names)
        if path is None:
            continue
        issues.used.setdefault(str(path.parent), set()).add(path.name)
        if index not in splits:
            continue
        image_id, groundings = next(iter(entry.ids), None) or as_text(entry.names[0]), entry.groundings
        kept = [number for number, caption in enumerate(entry.captions) if caption.strip()]
        captions = tuple(entry.captions[number] for number in kept)
        if len(kept) < len(entry.captions):
            groundings = groundings and tuple(groundings[number] for number in kept)
            empty += [image_id] if kept else []
        records.append(CaptionRecord(image_id, path, splits[index], captions, entry.boxes, groundings))
    shown = issues.display(file)
    issues.warning(empty, "image has|images have", f"empty captions in {shown}, left out")
    put = "put them into the folder and name them from there"
    issues.problem(files.outside, "image file|image files", f"named in {shown} outside its folder", put)
    where = f"not where {shown} says and matched by the bare file name"
    issues.warning(files.guessed, "image is|images are", where, "check that they fit")
    return records


def _splits(file: Path, entries: Sequence[Entry], issues: DatasetIssues, remedy: str) -> dict[int, str]:
    """The split of each entry: its own, else that in the file's name, else that of lists beside it, else drawn."""
    shown = issues.display(file)
    if not any(entry.splits for entry in entries):
        if split := split_of_file(file.stem):
            return dict.fromkeys(range(len(entries)), split)
        names = [list(map(as_text, (*entry.names, *entry.ids))) for entry in entries]
        return choose_splits(names, [root_of(file), file.parent, issues.folder], issues, shown, remedy)
    named = [list(dict.fromkeys(map(split_name, entry.splits))) for entry in entries]
    pairs = list(zip(entries, named, strict=True))
    several = [f"{entry.names[0]} ({', '.join(own)})" for entry, own in pairs if len(own) > 1]
    issues.problem(several, "image is|images are", f"in more than one split in {shown}")
    without = [entry.names[0] for entry, own in pairs if not own]
    issues.problem(without, "image has|images have", f"no split in {shown}, though others have")
    return {index: own[0] if own else "" for index, own in enumerate(named)}


@dataclass(frozen=True)
class Columns:
    """The columns of a table, or keys of an object, by what they hold; indices from 0."""

    count: int
    image: int
    captions: tuple[int, ...]
    split: int | None = None
    id: int | None = None

    @staticmethod
    @cache
    def of(names: tuple[str, ...]) -> Columns | None:
        """Recognise columns by their names; None if none is for images or none for captions."""
        names = tuple(re.sub(r"[\s.-]+", "_", name.strip().lower()) for name in names)
        image, split, image_id = (_first(names, wanted) for wanted in (IMAGE, SPLIT, ID))
        for word in CAPTION:  # caption, captions, caption_1, caption2 and so on, of the first such word that occurs
            captions = tuple(index for index, name in enumerate(names) if re.fullmatch(rf"{word}s?_?[0-9]*", name))
            if captions and image is not None:
                return Columns(len(names), image, captions, split, image_id)
        return None


def _first(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


class CaptionRows:
    """Gathers the rows of a file by image: of tables, JSON lines and Flickr's files."""

    def __init__(self, file: Path, issues: DatasetIssues, form: str, noun: str = "line|lines") -> None:
        """`form` is what a row is like, for messages; `noun` is of rows, for one and for several."""
        self._file, self._issues, self._form, self._noun = file, issues, form, noun
        self._entries: dict[str, Entry] = {}
        self.unusable: list[int] = []  # numbers of rows

    def add(self, number: int, columns: Columns, values: Sequence[Any]) -> None:
        """Add a row by its number in the file; one without a name, or with values of other types, is unusable.

        Values are texts; those of JSON may be integers, lists of captions, or None for nothing.
        """
        cells = [values[at] for at in columns.captions if values[at] is not None]
        captions = [text for cell in cells for text in (cell if isinstance(cell, list) else [cell])]
        named = (columns.image, columns.split, columns.id)
        texts = ["" if at is None or values[at] is None else values[at] for at in named]
        name, split, image_id = (str(text).strip() for text in texts)
        are_texts = all(isinstance(text, str) or type(text) is int for text in texts)
        if not name or not are_texts or not all(isinstance(caption, str) for caption in captions):
            self.unusable.append(number)
            return
        name = posixpath.normpath(name.replace("\\", "/"))
        entry = self._entries.setdefault(name, Entry((name,)))
        entry.captions.extend(caption for caption in captions if caption.strip())
        if split:
            entry.splits[split] = None
        if image_id:
            entry.ids[image_id] = None

    def records(self, folders: Iterable[Path], remedy: str) -> list[CaptionRecord]:
        """The records of the images; see `make_records`."""
        shown, entries = self._issues.display(self._file), list(self._entries.values())
        self._issues.problem(self.unusable, self._noun, f"of {shown} cannot be used", f"each is like {self._form}")
        if any(len(entry.ids) > 1 for entry in entries):
            self._issues.warnings.append(
                f"The ids in {shown} number captions rather than images, so the images go by their file names."
            )
            for entry in entries:
                entry.ids.clear()
        without = [entry.names[0] for entry in entries if not entry.ids]
        if len(without) < len(entries):
            self._issues.problem(without, "image has|images have", f"no id in {shown}, though others have")
        return make_records(self._file, entries, self._issues, folders, remedy)


def read_files(
    form: str,
    files: Sequence[Path],
    issues: DatasetIssues,
    read_file: Callable[[Path, DatasetIssues], Iterable[CaptionRecord]],
    unsplit: Sequence[Path],
) -> CaptionDataset:
    """The dataset of files of captions: none, and a problem, where of several some (`unsplit`) give no splits."""
    if len(files) > 1 and unsplit:
        issues.problems.append(
            f"{issues.root} holds {len(files)} files of captions, and {summarise(map(issues.display, unsplit))} says "
            "nothing about splits; join them to one, or name them train, val and test; a table may have a column split."
        )
        files = []
    records = issues.collect(files, read_file)
    issues.unused()
    return issues.dataset(form, records)
