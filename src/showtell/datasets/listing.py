"""Images that a file names one after the other, with captions, splits and ids: tables, JSON lines, Flickr."""

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
from showtell.datasets.split_lists import choose_splits
from showtell.datasets.splits import split_name, split_of_file
from showtell.errors import summarise
from showtell.images.photo_files import is_image_file

# What images, captions, splits and ids are called as people write it, the likeliest first; case, spaces and hyphens
# do not count. image_id names the file only where nothing else does.
IMAGE = (
    *("image", "image_file", "image_filename", "image_file_name", "image_path", "image_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "img", "photo", "picture", "image_id"),
)
CAPTION = ("caption", "sentence", "text", "description", "comment")
SPLIT = ("split", "subset", "partition")
ID = ("image_id", "imageid", "img_id", "id")


@dataclass(frozen=True)
class Roles:
    """Which columns of a table, or keys of an object, hold what, by their places from 0."""

    count: int
    image: int
    captions: tuple[int, ...]
    split: int | None
    id: int | None

    @staticmethod
    def of(names: Sequence[str]) -> Roles | None:
        """What names of columns stand for; None if none is for images or none for captions."""
        names = [re.sub(r"[\s.-]+", "_", name.strip().lower()) for name in names]
        image, captions = _first(names, IMAGE), _caption_places(names)
        if image is None or not captions:
            return None
        return Roles(len(names), image, captions, _first(names, SPLIT), _first(names, ID))


def _first(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _caption_places(names: Sequence[str]) -> tuple[int, ...]:
    """The places of caption, captions, caption_1, caption2 and so on, of the first such word that occurs."""
    for word in CAPTION:
        pattern = re.compile(rf"{word}s?_?[0-9]*")
        places = tuple(place for place, name in enumerate(names) if pattern.fullmatch(name))
        if places:
            return places
    return ()


@dataclass
class _Image:
    """What a file says of one image."""

    captions: list[str] = field(default_factory=list)
    splits: dict[str, None] = field(default_factory=dict)  # as a set that keeps its order; so too the ids
    ids: dict[str, None] = field(default_factory=dict)


class Listing:
    """Gathers what a file says of its images, and makes records of it.

    Args:
        file: that is read.
        issues: gets what is wrong.
        places: how sentences say where something stands, for one place and for several.
    """

    def __init__(self, file: Path, issues: DatasetIssues, places: tuple[str, str] = ("on line", "on lines")) -> None:
        self._file = file
        self._findings = issues
        self._places = places
        self._images: dict[str, _Image] = {}
        self._nameless: list[int] = []
        self._without_caption: list[tuple[int, _Image]] = []

    def add(self, place: int, name: str, captions: Sequence[str], split: str = "", image_id: str = "") -> None:
        """Add what stands at a place of the file; empty texts say nothing."""
        captions = [caption for caption in captions if caption.strip()]
        if not name.strip():
            self._nameless.append(place)
            return
        image = self._images.setdefault(posixpath.normpath(name.strip().replace("\\", "/")), _Image())
        image.captions.extend(captions)
        if not captions:
            self._without_caption.append((place, image))
        for text, seen in ((split, image.splits), (image_id, image.ids)):
            if text.strip():
                seen[text.strip()] = None

    def at(self, places: Sequence[int]) -> str:
        """Some places of the file, as the end of a sentence.

        >>> Listing(Path("captions.csv"), DatasetIssues(Path("."))).at([2, 4])
        'on lines 2, 4'
        """
        return f"{self._places[len(places) > 1]} {summarise(places)}"

    def records(self, folders: Sequence[Path], remedy: str) -> list[CaptionRecord]:
        """The records of the images.

        Args:
            folders: where the images may lie, the likeliest first.
            remedy: what would choose splits, for the sentence about those that were drawn.
        """
        shown = self._findings.shown(self._file)
        if self._nameless:
            self._findings.problems.append(f"{shown} names no image {self.at(self._nameless)}.")
        empty = [place for place, image in self._without_caption if image.captions]
        if empty:
            self._findings.warnings.append(f"{shown} has no caption {self.at(empty)}, left out.")
        ids = self._ids(shown)
        splits = self._splits(shown, ids, remedy)
        files = ImageFiles(folders)
        used: dict[str, set[str]] = {}
        records = []
        for name, image in self._images.items():
            path = files.find([name])
            if path is None:
                continue
            used.setdefault(str(path.parent), set()).add(path.name)
            if name in splits:
                records.append(CaptionRecord(ids.get(name, name), path, splits[name], tuple(image.captions)))
        files.report(self._findings, shown)
        idle = [
            self._findings.shown(os.path.join(folder, name))  # noqa: PTH118 (Path is slow here)
            for folder, names in used.items()
            for name in sorted(files.listing(folder) - names)
            if is_image_file(name)
        ]
        if idle:
            self._findings.warnings.append(
                f"{counted(len(idle), 'image')} beside the others {'is' if len(idle) == 1 else 'are'} not in {shown} "
                f"and left out: {summarise(idle)}."
            )
        return records

    def _splits(self, shown: str, ids: dict[str, str], remedy: str) -> dict[str, str]:
        """The split of each image: of its entries, else of the file's name, else of lists beside it, else drawn."""
        of_file = split_of_file(self._file.stem)
        if not any(image.splits for image in self._images.values()):
            if of_file:
                return dict.fromkeys(self._images, of_file)
            named = {name: (name, *([ids[name]] if name in ids else [])) for name in self._images}
            return choose_splits(named, [self._file.parent, self._findings.folder], self._findings, shown, remedy)
        splits, several, none = {}, [], []
        for name, image in self._images.items():
            names = list(dict.fromkeys(map(split_name, image.splits)))
            if len(names) > 1:
                several.append(f"{name} ({', '.join(names)})")
            elif not names:
                none.append(name)
            splits[name] = names[0] if names else ""
        if several:
            self._findings.problems.append(
                f"{shown} puts {counted(len(several), 'image')} in more than one split: {summarise(several)}."
            )
        if none:
            self._findings.problems.append(
                f"{shown} gives {counted(len(none), 'image')} no split, though others have one: {summarise(none)}."
            )
        return splits

    def _ids(self, shown: str) -> dict[str, str]:
        """The id of each image where the file has ids; none where these number the captions instead."""
        if not any(image.ids for image in self._images.values()):
            return {}
        if any(len(image.ids) > 1 for image in self._images.values()):
            self._findings.warnings.append(
                f"The ids in {shown} number captions rather than images, so the images go by their file names."
            )
            return {}
        none = [name for name, image in self._images.items() if not image.ids]
        if none:
            self._findings.problems.append(
                f"{shown} gives {counted(len(none), 'image')} no id, though others have one: {summarise(none)}."
            )
        return {name: next(iter(image.ids)) for name, image in self._images.items() if image.ids}
