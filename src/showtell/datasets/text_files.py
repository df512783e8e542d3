"""A text file for each image: dog.jpg with its captions in dog.txt, one per line, in all subfolders.

So write `showtell caption --format sidecar`, trainers of image generators (folders such as `10_dog`) and img2dataset
(folders such as `00000`). Folders may be splits.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from showtell.datasets.entries import Entry, make_records
from showtell.datasets.image_files import names_in
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_of_name
from showtell.errors import DataError
from showtell.files import read_text
from showtell.images.photo_files import find_photos, has_sidecars, is_image_file, is_left_alone

EXAMPLE = "dog.jpg beside dog.txt with the line A dog runs."

_SUFFIXES = (".txt", ".caption")
_PARAGRAPHS = re.compile(r"\S[^\S\n]*\n\s*\n\s*\S")  # lines parted by an empty one
_LONG = 60  # words of a line that is rather a paragraph than a caption


def recognises(path: Path) -> bool:
    """Whether a photo has a text file: in the folder, in one named after a split, or below if there are no sidecars."""
    if not path.is_dir():
        return False
    has_pairs = False
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not is_left_alone(name)]
        parts = Path(folder).relative_to(path).parts
        if _has_pair(names):
            if not parts or split_of_name(parts[0]):
                return True
            has_pairs = True
    return has_pairs and not has_sidecars(path)


def _has_pair(names: list[str]) -> bool:
    texts = {name.rpartition(".")[0] for name in names if name.lower().endswith(_SUFFIXES)}
    return any(name.rpartition(".")[0] in texts for name in names if is_image_file(name))


def read(path: Path) -> CaptionDataset:
    """Read the photos that have a text file; ids are paths from the folder, and folders train, val and test splits."""
    issues = DatasetIssues(path)
    return issues.dataset("text_files", issues.collect([path], _read_folder))


def _read_folder(path: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    photos: dict[Path, list[Path]] = {}  # by their path without suffix, as the texts
    texts: dict[Path, list[Path]] = {}
    for photo in find_photos([str(path)]):
        photos.setdefault(_stem(photo), []).append(photo)
    for folder in dict.fromkeys(stem.parent for stem in photos):
        for name in sorted(names_in(str(folder))):
            if name.lower().endswith(_SUFFIXES):
                texts.setdefault(_stem(folder / name), []).append(folder / name)
    entries, unreadable, shared, several, paragraphs = [], [], [], [], []
    without: list[str] = []
    for stem, own in photos.items():
        files = texts.get(stem, [])
        try:
            contents = [read_text(file) for file in files]
        except DataError as error:
            unreadable.append(str(error).rstrip("."))
            continue
        captions = [line.strip() for content in contents for line in re.split(r"[\r\n]+", content) if line.strip()]
        if not captions:
            without += map(issues.display, own)
            continue
        shared += [" and ".join(photo.name for photo in own)] if len(own) > 1 else []
        several += [" and ".join(map(issues.display, files))] if len(files) > 1 else []
        is_long = len(captions) > 1 and max(len(caption.split()) for caption in captions) > _LONG
        paragraphs += [issues.display(files[0])] if is_long or any(map(_PARAGRAPHS.search, contents)) else []
        name = own[0].relative_to(path).as_posix()
        split = split_of_name(name.partition("/")[0]) if "/" in name else None
        entries.append(Entry((name,), captions, {split: None} if split else {}))
    name_each = "give each photo a name of its own"
    issues.problem(shared, "text file belongs|text files belong", "to more than one photo", name_each)
    issues.problem(unreadable, "text file|text files", "cannot be read")
    issues.warning(several, "photo has|photos have", "more than one text, whose captions are joined")
    one_line = "each line is read as a caption of its own, so write a caption on one line"
    issues.warning(paragraphs, "text has|texts have", "paragraphs or lines parted by empty ones", one_line)
    issues.warning(without, "image has|images have", "no captions, unlike others in the folder, left out")
    lists = "folders train, val and test, or lists train.txt, val.txt and test.txt,"
    groups = [[entry for entry in entries if bool(entry.splits) is has_split] for has_split in (False, True)]
    return [
        record for own in groups if own for record in make_records(path / "*.txt", own, issues, [path], lists)
    ]  # splits are drawn of those in no folder of a split


def _stem(path: Path) -> Path:
    return path.parent / path.name.rpartition(".")[0]
