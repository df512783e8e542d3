"""Entries: what files of captions say of each image, gathered from rows and made to records."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from showtell.datasets.image_files import MAX_FILES, ImageFiles, as_text, list_files, root_of, subfolders
from showtell.datasets.issues import DatasetIssues, FileReader
from showtell.datasets.records import Box, CaptionDataset, CaptionRecord, Grounding
from showtell.datasets.split_lists import choose_splits
from showtell.datasets.splits import split_name, split_of_file, split_of_folder, split_of_name, split_rank
from showtell.errors import summarise
from showtell.text.caption_columns import Columns, captions_in

FormT = TypeVar("FormT")


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
    """The records of entries, whose images lie in one of the folders; `remedy` is what would choose splits."""
    splits, files, empty, records = _splits(file, entries, issues, remedy), ImageFiles(folders), [], []
    prefix = f"{file.parent.name}/" if split_of_folder(file, issues.root) else ""
    for index, entry in enumerate(entries):
        if (path := files.find(entry.names)) is None:
            continue
        issues.used.setdefault(str(path.parent), set()).add(path.name)
        if index not in splits:
            continue
        image_id, groundings = next(iter(entry.ids), None) or prefix + as_text(entry.names[0]), entry.groundings
        kept = [number for number, caption in enumerate(entry.captions) if caption.strip()]
        captions, without_text = tuple(entry.captions[number] for number in kept), len(entry.captions) - len(kept)
        if without_text:
            groundings = groundings and tuple(groundings[number] for number in kept)
            empty += [image_id] if kept else []
        records.append(CaptionRecord(image_id, path, splits[index], captions, entry.boxes, groundings, without_text))
    shown = issues.display(file)
    issues.warning(empty, "image has|images have", f"empty captions in {shown}, left out")
    put = "put them into the folder and name them from there"
    issues.problem(files.outside, "image file|image files", f"named in {shown} outside its folder", put)
    where = f"not where {shown} says and matched by the end of the name"
    issues.warning(files.guessed, "image is|images are", where, "check that they fit")
    return records


def _splits(file: Path, entries: Sequence[Entry], issues: DatasetIssues, remedy: str) -> dict[int, str]:
    """The split of each entry: its own, else that in the file's name, else that of lists beside it, else drawn."""
    shown = issues.display(file)
    if not any(entry.splits for entry in entries):
        if split := split_of_file(file, issues.root):
            return dict.fromkeys(range(len(entries)), split)
        first = [entry.names[0] for entry in entries]
        folders = [split_of_name(name.partition("/")[0]) if "/" in name else None for name in first]
        if None not in folders and {"train"} < set(folders):  # train/1.jpg and test/1.jpg
            return {index: split for index, split in enumerate(folders) if split}
        names = [list(map(as_text, (*entry.names, *entry.ids))) for entry in entries]
        return choose_splits(names, [root_of(file), file.parent, issues.folder], issues, shown, remedy)
    named = [list(dict.fromkeys(map(split_name, entry.splits))) for entry in entries]
    pairs = list(zip(entries, named, strict=True))
    several = [f"{entry.names[0]} ({', '.join(own)})" for entry, own in pairs if len(own) > 1]
    issues.problem(several, "image is|images are", f"in more than one split in {shown}")
    without = [entry.names[0] for entry, own in pairs if not own]
    issues.problem(without, "image has|images have", f"no split in {shown}, though others have")
    return {index: own[0] if own else "" for index, own in enumerate(named)}


class CaptionRows:
    """Gathers the rows of a file by image: of tables, JSON lines and Flickr's files."""

    def __init__(self, file: Path, issues: DatasetIssues, form: str, noun: str = "line|lines") -> None:
        """`form` is what a row is like, for messages; `noun` is of rows, for one and for several."""
        self._file, self._issues, self._form, self._noun = file, issues, form, noun
        self._entries: dict[str, Entry] = {}
        self.unusable: list[int] = []  # numbers of rows

    def add(self, number: int, columns: Columns, values: Sequence[Any]) -> None:
        """Add a row by its number; of JSON, values may also be integers, lists of captions and None."""
        cells = [captions_in(values[at]) for at in columns.captions]
        captions = [text for own in cells for text in own or ()]
        named = (columns.image, columns.split, columns.id)
        texts = ["" if at is None or values[at] is None else values[at] for at in named]
        name, split, image_id = (str(text).strip() for text in texts)
        are_texts = all(isinstance(text, str) or type(text) is int for text in texts)
        if not name or not are_texts or None in cells:
            self.unusable.append(number)
            return
        written, name = texts[0], posixpath.normpath(name.replace("\\", "/"))
        names = (name,) if written == name or not isinstance(written, str) else (name, written)
        entry = self._entries.setdefault(name, Entry(names))
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


def list_below(path: Path, suffixes: tuple[str, ...], form: Callable[[Path], FormT | None]) -> dict[Path, FormT]:
    """The files of captions at a path with their forms, by splits: in a folder itself, else in its folders, data/*."""
    deeper = [path, *subfolders(path), *subfolders(path / "data")] if path.is_dir() else [path]
    for folders in (deeper[:1], deeper[1:]):
        listed = [list_files(folder, suffixes) for folder in folders]
        kept = [own for own in listed if len(own) <= MAX_FILES or not {".json", ".txt"} & {*suffixes}]
        if forms := {file: held for own in kept for file in own if (held := form(file)) is not None}:
            return dict(sorted(forms.items(), key=lambda item: split_rank(split_of_file(item[0], path) or "")))
    return {}


def read_files(
    form: str, files: Mapping[Path, Columns], issues: DatasetIssues, read_file: FileReader
) -> CaptionDataset:
    """The dataset of files of captions; several need splits each, by their names or in a column."""
    unsplit = [file for file in files if files[file].split is None and not split_of_file(file, issues.root)]
    if len(files) > 1 and unsplit:
        issues.problems.append(
            f"{issues.root} holds {len(files)} files of captions, and {summarise(map(issues.display, unsplit))} says "
            "nothing about splits; join them to one, name them train, val and test, or name datasets of their own as a "
            "list, [A,B]; a table may have a column split."
        )
        files = {}
    records = _by_file_names(issues.collect(files, read_file), files, issues)
    issues.unused()
    return issues.dataset(form, records)


def _by_file_names(records: list[CaptionRecord], files: Iterable[Path], issues: DatasetIssues) -> list[CaptionRecord]:
    """The records by the names of their files, if their ids number the rows of each of several files anew."""
    by_split: dict[str, list[CaptionRecord]] = {}
    for record in records:
        by_split.setdefault(record.split, []).append(record)
    for own in by_split.values():
        first = own[0].image_id
        if first not in ("0", "1") or [one.image_id for one in own] != [str(n + int(first)) for n in range(len(own))]:
            return records
    paths = {record.image_id: record.path for record in records}
    if len(by_split) < 2 or all(paths[record.image_id] == record.path for record in records):
        return records
    shown = summarise(map(issues.display, files))
    issues.warnings.append(f"The ids in {shown} number rows rather than images, so the images go by their file names.")
    return [replace(record, image_id=as_text(issues.display(record.path))) for record in records]
