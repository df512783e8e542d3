"""A text file for each image: dog.jpg with its captions in dog.txt, one per line; folders may be splits."""

from __future__ import annotations

import os
from pathlib import Path

from showtell.datasets.entries import Entry, make_records
from showtell.datasets.image_files import as_text, names_in
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_of_file
from showtell.errors import DataError
from showtell.files import read_text
from showtell.images.photo_files import is_image_file

EXAMPLE = "dog.jpg beside dog.txt with the line A dog runs."


def recognises(path: Path) -> bool:
    """Whether a photo and a text file have the same name, in the folder or in one named after a split."""
    return path.is_dir() and any(map(_pairs, _folders(path)))


def read(path: Path) -> CaptionDataset:
    """Read the photos of a folder that have a text file, or those of its folders train, val and test.

    An image's id is its file name, after that of its folder where splits are folders.
    """
    issues = DatasetIssues(path)
    records = issues.collect(_folders(path), _read_folder)
    issues.unused()
    return issues.dataset("text_files", records)


def _folders(path: Path) -> list[Path]:
    """The folder itself, and its subfolders that are named after a split."""
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    return [path, *(path / name for name in names if split_of_file(name))]


def _pairs(folder: Path) -> dict[str, list[str]]:
    """The photos of each text file that has any, by its name."""
    names = sorted(names_in(str(folder)))
    pairs: dict[str, list[str]] = {name: [] for name in names if name.lower().endswith(".txt")}
    texts = {name.rpartition(".")[0]: name for name in pairs}
    for name in filter(is_image_file, names):
        if text := texts.get(name.rpartition(".")[0]):
            pairs[text].append(name)
    return {text: photos for text, photos in pairs.items() if photos}


def _read_folder(folder: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    pairs, split = _pairs(folder), None if folder == issues.root else split_of_file(folder.name)
    several = [" and ".join(photos) for photos in pairs.values() if len(photos) > 1]
    unique = "give each photo a name of its own"
    issues.problem(several, "text file belongs|text files belong", "to more than one photo", unique)
    entries, unreadable = [], []
    for text, photos in pairs.items():
        try:
            lines = read_text(folder / text).splitlines()
        except DataError as error:
            unreadable.append(str(error).rstrip("."))
            continue
        entry = Entry(photos[:1], [line.strip() for line in lines if line.strip()])
        if split:
            entry.splits[split], entry.ids[as_text(f"{folder.name}/{photos[0]}")] = None, None
        entries.append(entry)
    issues.problem(unreadable, "text file|text files", "cannot be read")
    lists = "folders train, val and test, or lists train.txt, val.txt and test.txt,"
    return make_records(folder / "*.txt", entries, issues, [folder], lists) if entries else []
