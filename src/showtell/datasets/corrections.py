"""Corrections: captions that people accepted or wrote, in a folder with their photos.

    corrections.jsonl    a line of JSON for each change of a row, with the whole row; the last line of a row holds
    photos/              the photos: their names, and the beginning of the SHA-256 of their bytes

What was accepted or corrected is drawn into train and val; all other photos are "unchecked".
`serving/corrections.py` writes the folder.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from showtell.config import Config, describe_problem
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord, check_on_page
from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
from showtell.errors import ImageError, StorageError, UsageError
from showtell.files import read_bytes
from showtell.images.photo import open_photo, read_photo

JOURNAL = "corrections.jsonl"
PHOTOS = "photos"
CHECKED = ("accepted", "corrected")  # states of rows that a person vouches for
Status = Literal["unchecked", "accepted", "corrected", "skipped"]
EXAMPLE = "the folder of showtell serve --corrections, with its corrections.jsonl"


class Correction(Config):
    """A photo with the caption that was proposed and the one that it has now."""

    id: str = Field(description="SHA-256 of the photo's bytes, in hexadecimal digits.")
    image: str = Field(pattern=rf"^{PHOTOS}/[^/\\]+$", description="The photo's path from the folder of corrections.")
    name: str = Field(description="What the client called it, to be shown.")
    captioner: str = Field(description="Who proposed a caption.")
    proposed: str = Field(description="The caption that was proposed.")
    confidence: float | None = Field(None, ge=0, le=1, description="Of the caption that was proposed.")
    doubt: str | None = Field(None, description="Why the captioner would not rely on it.")
    caption: str = Field(description="The caption as it is now.")
    status: Status = Field("unchecked", description="Verdict of a person.")
    revision: int = Field(1, ge=1, description="One more after each change; the next change has to name it.")
    created: str = Field(description="ISO 8601, UTC.")
    changed: str = Field(description="ISO 8601, UTC.")

    @property
    def file(self) -> str:
        """The name of the photo's file."""
        return self.image.removeprefix(f"{PHOTOS}/")


def recognises(path: Path) -> bool:
    """Whether this is a folder of corrections, or the journal in it."""
    return _journal(path).is_file()


def read(path: Path) -> CaptionDataset:
    """Read the photos that have a caption, by the names they came with; a server may be using the folder."""
    issues = DatasetIssues(path)
    records = issues.collect([_journal(path)], lambda journal, _: _records(journal))
    if not records and not issues.problems:
        issues.problems.append(f"{path} holds no photo with a caption yet; {check_on_page(path)}.")
    return issues.dataset("corrections", records)


def draw_correction_splits(rows: Iterable[Correction]) -> dict[str, str]:
    """The split of each photo by its id: train or val for those that are `CHECKED`, "unchecked" for all others."""
    rows = list(rows)
    drawn = draw_splits((row.id for row in rows if row.status in CHECKED), val=VAL_SHARE, test=0)
    return {row.id: drawn.get(row.id, UNCHECKED) for row in rows}


def parse_rows(content: bytes, journal: Path) -> tuple[dict[str, Correction], int]:
    """The rows by id in whole lines of a journal, and the bytes read; a StorageError if a line is no correction."""
    *lines, rest = content.split(b"\n")
    rows: dict[str, Correction] = {}
    for line in lines:
        try:
            row = Correction.model_validate_json(line)
        except ValidationError as error:
            raise StorageError(
                f"{journal} has a line that is no correction ({describe_problem(error).rstrip('.')}): it was changed "
                "by something else; restore it from a backup, or delete that line."
            ) from error
        rows[row.id] = row
    return rows, len(content) - len(rest)


@dataclass(frozen=True)
class MatchedCorrections:
    """Which photos people have captions for, of a folder of corrections."""

    by_photo: dict[Path, Correction]  # of photos that show what was corrected, whatever they are called
    edited: dict[Path, Correction]  # of photos that have the name of a corrected one, and show something else
    missing: list[Correction]  # those of none of the photos


def match_corrections(folder: Path, photos: Sequence[Path]) -> MatchedCorrections:
    """The photos whose captions people accepted or corrected, by content without metadata, wherever they lie."""
    journal = _journal(folder)
    if not journal.is_file():
        raise UsageError(f"{folder} holds no corrections; name the folder of showtell serve --corrections.")
    rows = parse_rows(read_bytes(journal), journal)[0]
    rows = {id: row for id, row in rows.items() if row.status in CHECKED and row.caption}
    copies = [journal.parent / row.image for row in rows.values()]
    sizes = {copy.stat().st_size for copy in copies if copy.is_file()}  # none other has their content
    has_all_sizes = all(map(Path.is_file, copies))
    by_photo: dict[Path, Correction] = {}
    by_name: dict[str, list[Path]] = {}  # photos with another content
    for photo in photos:
        is_file = os.path.isfile(photo)  # noqa: PTH113 (a name that is too long is no file here)
        if is_file and (photo.stat().st_size in sizes or not has_all_sizes) and (id := digest_of(photo)) in rows:
            by_photo[photo] = rows[id]
        else:
            by_name.setdefault(photo.name, []).append(photo)
    matched = {row.id for row in by_photo.values()}
    edited: dict[Path, Correction] = {}
    missing = []
    for row in (row for row in rows.values() if row.id not in matched):
        alike = [photo for photo in by_name.get(Path(row.name).name, []) if photo not in by_photo]
        alike = [photo for photo in alike if photo.as_posix().endswith(f"/{row.name}")] or alike
        for photo in alike:
            (by_photo if _show_the_same(photo, journal.parent / row.image) else edited)[photo] = row
        missing += [] if alike else [row]
    return MatchedCorrections(by_photo, {photo: row for photo, row in edited.items() if photo not in by_photo}, missing)


def digest_of(photo: Path) -> str:
    """The SHA-256 of a photo's bytes, in hexadecimal digits; "" if it cannot be read."""
    try:
        return hashlib.sha256(read_photo(photo)).hexdigest()
    except ImageError:
        return ""


def _show_the_same(photo: Path, other: Path) -> bool:
    try:
        first, second = open_photo(photo), open_photo(other)
    except ImageError:
        return False
    return first.size == second.size and first.tobytes() == second.tobytes()


def _journal(path: Path) -> Path:
    return path if path.name == JOURNAL else path / JOURNAL


def _records(journal: Path) -> list[CaptionRecord]:
    rows = [row for row in parse_rows(read_bytes(journal), journal)[0].values() if row.caption]
    splits, names = draw_correction_splits(rows), Counter(row.name for row in rows)
    ids = {row.id: row.name if names[row.name] == 1 else Path(row.file).stem for row in rows}
    return [CaptionRecord(ids[row.id], journal.parent / row.image, splits[row.id], (row.caption,)) for row in rows]
