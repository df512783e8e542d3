"""A text file for each image: dog.jpg with its captions in dog.txt, one per line; folders may be splits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.source_files import as_text
from showtell.datasets.split_lists import choose_splits
from showtell.datasets.splits import split_of_file
from showtell.errors import DataError
from showtell.files import read_text
from showtell.images.photo_files import is_image_file

EXAMPLE = "dog.jpg beside dog.txt with the line A dog runs."

_MAX_SHOWN = 3  # unreadable text files that get a sentence of their own
_REMEDY = "folders train, val and test, or lists train.txt, val.txt and test.txt, would choose them"


def recognises(path: Path) -> bool:
    """Whether a photo and a text file have the same name, in the folder or in one named after a split."""
    return path.is_dir() and any(_pairs(folder)[0] for folder, _ in _folders(path))


def read(path: Path) -> CaptionDataset:
    """Read the photos of a folder that have a text file, or those of its folders train, val and test.

    An image's id is its file name, after that of its folder where splits are folders.
    """
    issues = DatasetIssues(path)
    records: list[CaptionRecord] = []
    unreadable: list[str] = []
    for folder, split in _folders(path):
        pairs, photos = _pairs(folder)
        if pairs:
            records.extend(_records(folder, split, pairs, issues, unreadable))
            _report_unpaired(folder, pairs, photos, issues)
    issues.problems.extend(unreadable[:_MAX_SHOWN])
    more = [sentence.split(" ")[0] for sentence in unreadable[_MAX_SHOWN:]]
    issues.problem(more, "{count} cannot be read: {items}.", "more text file")
    return issues.dataset("text_files", records)


def _folders(path: Path) -> Iterator[tuple[Path, str | None]]:
    """The folder itself, and its subfolders that are named after a split, each with that split."""
    yield path, None
    with os.scandir(path) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    yield from ((path / name, split) for name in names if (split := split_of_file(name)))


def _pairs(folder: Path) -> tuple[dict[str, tuple[str, list[str]]], list[str]]:
    """The text file and the photos of each stem that has both, and all photos."""
    names = sorted(os.listdir(folder))  # noqa: PTH208 (names are enough)
    photos: dict[str, list[str]] = {}
    for name in filter(is_image_file, names):
        photos.setdefault(name.rpartition(".")[0], []).append(name)
    texts = {name.rpartition(".")[0]: name for name in names if name.lower().endswith(".txt")}
    pairs = {stem: (texts[stem], names) for stem, names in photos.items() if stem in texts}
    return pairs, [name for names in photos.values() for name in names]


def _records(
    folder: Path,
    split: str | None,
    pairs: dict[str, tuple[str, list[str]]],
    issues: DatasetIssues,
    unreadable: list[str],
) -> Iterator[CaptionRecord]:
    prefix = "" if split is None else f"{folder.name}/"
    ids = {as_text(f"{prefix}{photos[0]}"): stem for stem, (_, photos) in pairs.items()}
    if split is None:
        splits = choose_splits({name: (name,) for name in ids}, [folder], issues, f"{folder}", _REMEDY)
    else:
        splits = dict.fromkeys(ids, split)
    for image_id, stem in ids.items():
        text, photos = pairs[stem]
        try:
            lines = read_text(folder / text, "text").splitlines() if image_id in splits else []
        except DataError as error:
            unreadable.append(str(error))
            continue
        if image_id in splits:
            captions = tuple(line.strip() for line in lines if line.strip())
            yield CaptionRecord(image_id, folder / photos[0], splits[image_id], captions)


def _report_unpaired(
    folder: Path, pairs: dict[str, tuple[str, list[str]]], photos: list[str], issues: DatasetIssues
) -> None:
    issues.problem(
        [" and ".join(names) for _, names in pairs.values() if len(names) > 1],
        "{count} to more than one photo: {items}; give each photo a name of its own.",
        *("text file belongs", "text files belong"),
    )
    with_text = {name for _, names in pairs.values() for name in names}
    without_text = [issues.display(folder / name) for name in photos if name not in with_text]
    issues.warning(without_text, "{count} no text file, left out: {items}.", "image has", "images have")
