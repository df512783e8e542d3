"""Captions that people correct: a journal and photos in a folder, which is a dataset at any time.

A photo is known by the SHA-256 of its bytes, and written whole before its row. What a method returns is on disk. Each
change names the revision that it was made from, so that two tabs or two servers cannot overwrite each other.
`datasets/corrections.py` declares the layout and reads the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image
from pydantic import Field, ValidationError

from showtell.config import Config, describe_problem
from showtell.datasets.corrections import (
    CHECKED,
    JOURNAL,
    PHOTOS,
    Correction,
    Status,
    digest_of,
    draw_correction_splits,
    parse_rows,
)
from showtell.datasets.table import correction_lines
from showtell.errors import DataError, ShowtellError, StorageError, UsageError, printable, shorten
from showtell.files import locked, require_writable, write_bytes
from showtell.images.photo import decode_photo, photo_suffix, to_photo
from showtell.images.photo_files import IMAGE_SUFFIXES
from showtell.text.vocabulary import SPECIAL, Vocabulary

MAX_CAPTION = 2_000  # characters
MAX_NAME, MAX_PATH = 200, 1_000
THUMBNAIL = 256  # pixels of the longer side
_MAX_STEM = 100  # bytes of a photo's file name, without digits and suffix: file systems take 255
_DIGITS = 12  # of the SHA-256 in a photo's file name
_BELOW = re.compile(r"(?!(.*/)?\.\.?(/|$))[^/\\:]+(/[^/\\:]+)*")  # names of files in or below a folder


class UnknownCorrectionError(ShowtellError):
    """No row has this id."""


class ConflictError(ShowtellError):
    """A row has changed since the revision that a change was made from; `now` is the row as it is."""

    def __init__(self, message: str, now: Correction) -> None:
        super().__init__(message)
        self.now = now


class CorrectionBatch(Config):
    """What became of changes that were made together."""

    rows: list[Correction] = Field(description="The rows that were changed.")
    conflicts: list[Correction] = Field(description="Those that had been changed since, as they are.")


class CorrectionPage(Config):
    """A page of rows."""

    rows: list[Correction] = Field(description="The rows of the page.")
    total: int = Field(description="Number of rows on all pages.")


class CorrectionStore:
    """Photos and their captions in a folder, which is made if needed; threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        require_writable(folder, "--corrections", "folder")
        self.folder = folder
        self._journal = folder / JOURNAL
        self._lock = threading.Lock()
        self._known: dict[str, Correction] = {}  # by id, in the order in which they came
        self._read = 0  # bytes of the journal
        self._identity: int | None = None  # of its file
        try:
            (folder / PHOTOS).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"Cannot write {folder / PHOTOS}: {error.strerror or error}.") from error
        self.page()

    @contextmanager
    def _rows(self) -> Iterator[dict[str, Correction]]:
        """The rows as they are; nobody else changes them inside the block."""
        try:
            with self._lock, locked(self.folder / ".corrections.lock", wait=True):
                if not self._journal.exists():
                    write_bytes(self._journal, b"")
                with self._journal.open("rb") as stream:
                    status = os.fstat(stream.fileno())
                    if status.st_ino != self._identity or status.st_size < self._read:  # another file by now
                        self._known, self._read, self._identity = {}, 0, status.st_ino
                    stream.seek(self._read)
                    rows, read = parse_rows(stream.read(), self._journal)
                self._known |= rows
                self._read += read
                yield self._known
        except OSError as error:
            raise self._failure("read", error) from error

    def _write(self, *rows: Correction) -> None:
        """Append the present state of rows, all of them or none."""
        lines = b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
        try:
            with self._journal.open("ab") as stream:
                stream.truncate(self._read)  # of a line that was not finished
                try:
                    stream.write(lines)
                    stream.flush()
                    os.fsync(stream.fileno())
                except OSError:
                    os.ftruncate(stream.fileno(), self._read)
                    raise
        except OSError as error:
            raise self._failure("written", error) from error
        self._known |= {row.id: row for row in rows}
        self._read += len(lines)

    def _failure(self, done: str, error: OSError) -> StorageError:
        reason = error.strerror or error
        return StorageError(f"{self._journal} cannot be {done}: {reason}; repeat what was not confirmed.")

    def add(
        self,
        content: bytes,
        *,
        name: str = "photo",
        captioner: str = "",
        caption: str = "",
        confidence: float | None = None,
        doubt: str | None = None,
    ) -> tuple[Correction, bool]:
        """Keep a photo and its proposed caption; the row, and whether it is new. What somebody decided stays."""
        id = hashlib.sha256(content).hexdigest()
        with self._rows() as rows:
            known = rows.get(id)
        caption, now = _valid_caption(caption), _now()
        is_line = len(name) <= MAX_PATH and not {"Cc", "Cs", "Zl", "Zp"} & set(map(unicodedata.category, name))
        name = known.name if known is not None else (name if is_line else _as_name(name)) or "photo"
        if not (is_kept := known is not None and self._is_kept(known)):
            decode_photo(content, f'"{name}"')
        image = f"{PHOTOS}/{safe_stem(name)}-{id[:_DIGITS]}{photo_suffix(content, name)}"
        proposal: dict[str, Any] = {"captioner": _as_name(captioner), "proposed": caption, "caption": caption}
        try:
            row = Correction(
                id=id, image=image, name=name, **proposal, confidence=confidence, doubt=doubt, created=now, changed=now
            )
        except ValidationError as error:
            raise UsageError(describe_problem(error)) from error
        if not is_kept:
            try:
                write_bytes(self.folder / image, content)
            except DataError as error:
                reason = str(error).rstrip(".")
                raise StorageError(f"{reason}; make room or change the folder, and send the photo again.") from error
        with self._rows() as rows:
            known = rows.get(id)
            if known is not None:
                proposal |= {"confidence": confidence, "doubt": doubt}
                if known.status != "unchecked" or not caption or proposal.items() <= dict(known).items():
                    return known, False
                row = known.model_copy(update={**proposal, "revision": known.revision + 1, "changed": now})
            self._write(row)
            return row, known is None

    def change(self, id: str, revision: int, *, caption: str | None = None, status: Status | None = None) -> Correction:
        """Change a row and return it, or raise a ConflictError if its revision is another by now."""
        with self._rows() as rows:
            row = _changed(_row(rows, id), revision, caption, status)
            self._write(row)
            return row

    def change_many(self, changes: Iterable[tuple[str, int, str | None, Status | None]]) -> CorrectionBatch:
        """Make all changes (id, revision, caption, status) whose revision holds, or none if one is invalid."""
        changed, conflicts = {}, []
        with self._rows() as rows:
            for id, revision, caption, status in changes:
                try:
                    changed[id] = _changed(_row(rows, id), revision, caption, status)
                except ConflictError as conflict:
                    conflicts.append(conflict.now)
            self._write(*changed.values())
        return CorrectionBatch(rows=list(changed.values()), conflicts=conflicts)

    def page(self, statuses: Collection[str] = (), offset: int = 0, limit: int | None = None) -> CorrectionPage:
        """Rows with one of these statuses, or with any, in the order in which they came."""
        with self._rows() as rows:
            chosen = [row for row in rows.values() if not statuses or row.status in statuses]
        return CorrectionPage(rows=chosen[offset:][:limit], total=len(chosen))

    def table(self, statuses: Collection[str] = ()) -> list[str]:
        """The lines of the table (CSV). Photos have the client's names, or the store's where these are taken."""
        rows = self.page().rows
        splits = draw_correction_splits(rows)
        rows_by_name: dict[str, Correction] = {}
        for row in rows:
            if not statuses or row.status in statuses:
                is_free = row.name not in rows_by_name and _BELOW.fullmatch(row.name)
                rows_by_name[row.name if is_free else row.file] = row
        cells = ((name, row.caption, row.confidence, splits[row.id]) for name, row in rows_by_name.items())
        return list(correction_lines(cells))

    def photo(self, id: str) -> Path:
        """The file of a photo; an UnknownCorrectionError without one, a StorageError if its content has not this id."""
        with self._rows() as rows:
            row = _row(rows, id)
        path = self.folder / row.image
        if not self._is_kept(row):
            problem = "is not the one that was sent" if path.exists() else "is missing"
            raise StorageError(f"The photo {path} {problem}; put it back, or send it again.")
        return path

    def _is_kept(self, row: Correction) -> bool:
        """Whether the file of a row holds its photo."""
        return digest_of(self.folder / row.image) == row.id


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _changed(row: Correction, revision: int, caption: str | None, status: Status | None) -> Correction:
    """A row after a change, as `CorrectionStore.change` describes it."""
    if caption is None and status is None:
        raise UsageError('A change needs "caption", "status" or both.')
    if row.revision != revision:
        raise ConflictError(
            f"The caption was changed elsewhere: it has revision {row.revision} by now, and the change was "
            f"made from revision {revision}; look at it again.",
            row,
        )
    caption = row.caption if caption is None else _valid_caption(caption)
    status = status or ("accepted" if caption == row.proposed else "corrected")
    token = SPECIAL[Vocabulary.unknown]
    if status in CHECKED and (not caption or token in caption.split()):
        raise UsageError(
            f"A caption that is {status} is learned from, so it has words and no {token}; change it, or give "
            'it the status "skipped".'
        )
    return row.model_copy(update={"caption": caption, "status": status, "revision": revision + 1, "changed": _now()})


def _row(rows: dict[str, Correction], id: str) -> Correction:
    if id not in rows:
        shown = shorten(printable(id), 64)
        raise UnknownCorrectionError(f"There is no photo {shown} among the corrections; send it first.")
    return rows[id]


def thumbnail_of(content: bytes) -> bytes:
    """A small JPEG of a photo, of at most `THUMBNAIL` pixels a side, or an ImageError."""
    image = to_photo(content, lambda size: (THUMBNAIL, THUMBNAIL)).image
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    stream = BytesIO()
    image.save(stream, "JPEG", quality=80)
    return stream.getvalue()


def _valid_caption(caption: str) -> str:
    """A caption in one line."""
    caption = " ".join(caption.split())
    if len(caption) > MAX_CAPTION:
        raise UsageError(f"The caption has {len(caption):,} characters, and {MAX_CAPTION:,} are allowed; shorten it.")
    if any(unicodedata.category(char) in ("Cc", "Cs") for char in caption):
        raise UsageError(f"The caption {printable(caption)} has control characters or half characters; remove them.")
    return caption


def safe_stem(name: str) -> str:
    """A file name without suffix, valid everywhere, made of what a client called a photo: "DOG" of "../etc/DOG.png"."""
    last = PurePosixPath(name.replace("\\", "/")).name
    stem = Path(last).stem if Path(last).suffix.lower() in IMAGE_SUFFIXES else last
    stem = "".join("_" if char in '<>:"|?*' or not char.isprintable() else char for char in stem)
    return stem.encode("utf-8", "replace")[:_MAX_STEM].decode("utf-8", "ignore").strip(" .=") or "photo"


def _as_name(name: str) -> str:
    """A name in one line, escaped and shortened."""
    return shorten(printable(" ".join(name.split())), MAX_NAME)
