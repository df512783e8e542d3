"""Captions that people correct: a database and photos in a folder, which is a dataset at any time.

A photo is known by the SHA-256 of its bytes, and written whole before its row. What a method returns is on disk: SQLite
in WAL mode with `synchronous=FULL`. Each change names the revision that it was made from, so that two tabs or two
servers cannot overwrite each other. `datasets/corrections.py` declares the layout and reads the folder.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Literal

from PIL import Image
from pydantic import Field, computed_field

from showtell.config import Config
from showtell.datasets import corrections as layout
from showtell.datasets.corrections import Status
from showtell.datasets.splits import UNCHECKED
from showtell.datasets.table import correction_lines
from showtell.errors import (
    DataError,
    ImageError,
    ShowtellError,
    StorageError,
    UsageError,
    first_line,
    printable,
    shorten,
)
from showtell.files import locked, require_writable, write_bytes
from showtell.images.photo import decode_photo, photo_suffix, read_photo, to_photo
from showtell.images.photo_files import IMAGE_SUFFIXES
from showtell.text.vocabulary import SPECIAL, Vocabulary

MAX_CAPTION = 2_000  # characters
MAX_NAME = 200
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


class Correction(Config):
    """A photo with the caption that was proposed and the one that it has now."""

    id: str = Field(description="SHA-256 of the photo's bytes, in hexadecimal digits.")
    file: str = Field(exclude=True, description="Name of the photo's file.")
    name: str = Field(description="What the client called it, to be shown.")
    captioner: str = Field(description="Who proposed a caption.")
    proposed: str = Field(description="The caption that was proposed.")
    confidence: float | None = Field(description="Of the caption that was proposed, 0 to 1.")
    caption: str = Field(description="The caption as it is now.")
    status: Status = Field(description="Verdict of a person.")
    revision: int = Field(description="One more after each change; the next change has to name it.")
    created: str = Field(description="ISO 8601, UTC.")
    changed: str = Field(description="ISO 8601, UTC.")

    @computed_field(description="The photo's path from the folder of corrections.")  # type: ignore[prop-decorator]
    @property
    def image(self) -> str:
        """The photo's path from the folder of the store."""
        return f"{layout.PHOTOS}/{self.file}"


class CorrectionPage(Config):
    """A page of rows."""

    rows: list[Correction] = Field(description="The rows of the page.")
    total: int = Field(description="Number of rows on all pages.")


class CorrectionStore:
    """Photos and their captions in a folder, which is made if needed; threads and processes may share it.

    Raises:
        UsageError: the folder is a file.
        DataError: it cannot be written to.
        StorageError: its database is damaged, or was written by something else.
    """

    def __init__(self, folder: Path) -> None:
        require_writable(folder, "--corrections", "folder")
        self.folder = folder
        self._photos = folder / layout.PHOTOS
        self._database = folder / layout.DATABASE
        try:
            self._photos.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"Cannot write {self._photos}: {error.strerror or error}.") from error
        self._lock = threading.Lock()
        self._connection = layout.connect(self._database, create=True)
        self._identity = self._identify()
        try:
            with locked(folder / ".corrections.lock", wait=True):  # SQLite does not wait where WAL mode is switched on
                self._prepare()
            layout.check_database(self._connection, self._database)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        with self._lock, layout.translated_errors(self._database):
            self._connection.close()

    def _prepare(self) -> None:
        """Make the table of a new database; an old one is left as it is."""
        connection = self._connection
        with layout.translated_errors(self._database):
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                return
            connection.execute("PRAGMA journal_mode = WAL")
        with self._transaction("IMMEDIATE"):
            connection.execute(layout.SCHEMA)
            connection.execute(f"PRAGMA application_id = {layout.APPLICATION}")
            connection.execute(f"PRAGMA user_version = {layout.SCHEMA_VERSION}")

    def _identify(self) -> tuple[int, int] | None:
        """Which file the database is; None if it is gone."""
        with suppress(OSError):
            status = self._database.stat()
            return status.st_dev, status.st_ino
        return None

    @contextmanager
    def _transaction(self, mode: Literal["DEFERRED", "IMMEDIATE"] = "DEFERRED") -> Iterator[sqlite3.Connection]:
        """A transaction: all that it writes is on disk when the block ends, or none. Deferred ones only read."""
        with self._lock, layout.translated_errors(self._database, self._connection):
            if self._identify() != self._identity:  # SQLite would write on, into a file without a name
                raise StorageError(
                    f"{self._database} was removed or replaced while it was in use, so that nothing is kept; put it "
                    "back, or start the server again, and repeat what was not confirmed."
                )
            self._connection.execute(f"BEGIN {mode}")
            with self._connection:  # commits, or rolls back what an error has not ended itself
                yield self._connection

    def add(
        self,
        content: bytes,
        *,
        name: str = "photo",
        captioner: str = "",
        caption: str = "",
        confidence: float | None = None,
    ) -> tuple[Correction, bool]:
        """Keep a photo, the content of an image file, with the caption that a captioner proposes.

        Returns:
            The row, and whether it is new: a photo that is stored already keeps its row.

        Raises:
            ImageError: the photo cannot be read.
            UsageError: the caption is no text, or the confidence is not from 0 to 1.
            StorageError: the folder cannot be written, or the disk is full.
        """
        id = hashlib.sha256(content).hexdigest()
        if confidence is not None and not 0 <= confidence <= 1:
            raise UsageError(f"A confidence of {confidence} is none; give a number from 0 to 1.")
        caption = _valid_caption(caption)
        name, captioner = _as_name(name) or "photo", _as_name(captioner)
        with suppress(UnknownCorrectionError), self._transaction() as connection:
            row = self._row(connection, id)
            if self._is_kept(row):
                return row, False
            name = row.name
        decode_photo(content, f'"{name}"')
        file = f"{safe_stem(name)}-{id[:_DIGITS]}{photo_suffix(content, name)}"
        try:
            write_bytes(self._photos / file, content)
        except DataError as error:
            raise StorageError(
                f"{first_line(error)}; make room or change the folder, and send the photo again."
            ) from error
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        values = (None, id, file, name, captioner, caption, confidence, caption, UNCHECKED, 1, now, now)
        insert = f"INSERT INTO corrections VALUES ({', '.join('?' * len(values))}) ON CONFLICT (id) DO NOTHING"
        with self._transaction("IMMEDIATE") as connection:
            is_new = connection.execute(insert, values).rowcount
            return self._row(connection, id), bool(is_new)

    def change(self, id: str, revision: int, *, caption: str | None = None, status: Status | None = None) -> Correction:
        """Change the caption or the status of a row, and return it with its new revision.

        Args:
            id: of the row.
            revision: that the change was made from.
            caption: the new one; None leaves it.
            status: the new one; None: "accepted" if the caption is the one that was proposed, else "corrected".

        Raises:
            ConflictError: the row has another revision by now.
            UnknownCorrectionError: there is no such row.
            UsageError: there is nothing to change, or the caption is no text to learn from.
            StorageError: it cannot be written.
        """
        if caption is None and status is None:
            raise UsageError('A change needs "caption", "status" or both.')
        with self._transaction("IMMEDIATE") as connection:
            row = self._row(connection, id)
            if row.revision != revision:
                raise ConflictError(
                    f"The caption was changed elsewhere: it has revision {row.revision} by now, and the change was "
                    f"made from revision {revision}; look at it again.",
                    row,
                )
            caption = row.caption if caption is None else _valid_caption(caption)
            status = status or ("accepted" if caption == row.proposed else "corrected")
            token = SPECIAL[Vocabulary.unknown]
            if status in layout.CHECKED and (not caption or token in caption.split()):
                raise UsageError(
                    f"A caption that is {status} is learned from, so it has words and no {token}; change it, or give "
                    'it the status "skipped".'
                )
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            connection.execute(
                "UPDATE corrections SET caption = ?, status = ?, revision = revision + 1, changed = ? WHERE id = ?",
                (caption, status, now, id),
            )
            return self._row(connection, id)

    def page(self, statuses: Collection[str] = (), offset: int = 0, limit: int = -1) -> CorrectionPage:
        """Rows with one of these statuses, or with any, in the order in which they came; a limit of -1 is none."""
        chosen = f"FROM corrections WHERE status IN ({', '.join('?' * len(statuses or layout.STATES))})"
        values = tuple(statuses or layout.STATES)
        with self._transaction() as connection:
            (total,) = connection.execute(f"SELECT COUNT(*) {chosen}", values).fetchone()
            rows = connection.execute(
                f"SELECT * {chosen} ORDER BY number LIMIT ? OFFSET ?", (*values, limit, offset)
            ).fetchall()
        return CorrectionPage(rows=list(map(self._correction, rows)), total=total)

    def table(self, statuses: Collection[str] = ()) -> list[str]:
        """The lines of the table of corrections (CSV), of rows with some statuses, or any.

        It belongs beside the client's photos, so these have the client's names, or, where such a name is taken or
        leads elsewhere, those of the store's files.
        """
        rows = self.page().rows
        splits = layout.draw_correction_splits((row.id, row.status) for row in rows)
        rows = [row for row in rows if not statuses or row.status in statuses]
        rows_by_name: dict[str, Correction] = {}
        for row in rows:
            is_free = row.name not in rows_by_name and _BELOW.fullmatch(row.name)
            rows_by_name[row.name if is_free else row.file] = row
        return list(
            correction_lines((name, row.caption, row.confidence, splits[row.id]) for name, row in rows_by_name.items())
        )

    def photo(self, id: str) -> Path:
        """The file of a photo; an UnknownCorrectionError without one, a StorageError if its content has not this id."""
        with self._transaction() as connection:
            row = self._row(connection, id)
        if not self._is_kept(row):
            path = self._photos / row.file
            problem = "is not the one that was sent" if path.exists() else "is missing"
            raise StorageError(f"The photo {path} {problem}; put it back, or send it again.")
        return self._photos / row.file

    def _is_kept(self, row: Correction) -> bool:
        """Whether the file of a row holds its photo."""
        try:
            return hashlib.sha256(read_photo(self._photos / row.file)).hexdigest() == row.id
        except ImageError:
            return False

    def _row(self, connection: sqlite3.Connection, id: str) -> Correction:
        row = connection.execute("SELECT * FROM corrections WHERE id = ?", (id,)).fetchone()
        if row is None:
            shown = shorten(printable(id), 64)
            raise UnknownCorrectionError(f"There is no photo {shown} among the corrections; send it first.")
        return self._correction(row)

    def _correction(self, row: sqlite3.Row) -> Correction:
        values = layout.values_of(row, self._database)
        return Correction(**{name: values[name] for name in Correction.model_fields})


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
    """A file name without suffix, made of what a client called a photo, that is valid everywhere.

    >>> [safe_stem(name) for name in ("dog.jpg", "../etc/DOG.png", "a:b?.jpg", "..")]
    ['dog', 'DOG', 'a_b_', 'photo']
    """
    last = PurePosixPath(name.replace("\\", "/")).name
    stem = Path(last).stem if Path(last).suffix.lower() in IMAGE_SUFFIXES else last
    stem = "".join("_" if char in '<>:"|?*' or not char.isprintable() else char for char in stem)
    return stem.encode("utf-8", "replace")[:_MAX_STEM].decode("utf-8", "ignore").strip(" .=") or "photo"


def _as_name(name: str) -> str:
    """A name in one line, escaped and shortened."""
    return shorten(printable(" ".join(name.split())), MAX_NAME)
