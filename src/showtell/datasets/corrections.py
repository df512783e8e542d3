"""Corrections: captions that people accepted or wrote, in a database beside their photos.

    corrections.sqlite3    a row for each photo; `serving/corrections.py` writes it
    photos/                the photos: their names, and the beginning of the SHA-256 of their bytes

What was accepted or corrected is drawn into train and val; all other photos are "unchecked".
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePath
from typing import Any, Literal, get_args
from urllib.parse import quote

from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord, check_on_page
from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
from showtell.errors import StorageError, first_line

DATABASE = "corrections.sqlite3"
PHOTOS = "photos"
CHECKED = ("accepted", "corrected")  # states of rows that a person vouches for
Status = Literal["unchecked", "accepted", "corrected", "skipped"]
STATES = get_args(Status)
EXAMPLE = "the folder of showtell serve --corrections, with its corrections.sqlite3"

APPLICATION = 0x53543031  # what SQLite keeps of who wrote a database
SCHEMA_VERSION = 1
SCHEMA = f"""CREATE TABLE corrections (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    file TEXT NOT NULL, name TEXT NOT NULL, captioner TEXT NOT NULL, proposed TEXT NOT NULL,
    confidence REAL, caption TEXT NOT NULL, status TEXT NOT NULL CHECK (status IN {STATES}),
    revision INTEGER NOT NULL, created TEXT NOT NULL, changed TEXT NOT NULL
)"""
_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("id", "file", "name", "captioner", "proposed", "caption", "status", "created", "changed"), str),
    "number": int,
    "revision": int,
    "confidence": float | None,
}
BUSY_SECONDS = 10  # how long a change waits for that of another process


def recognises(path: Path) -> bool:
    """Whether this is a folder of corrections, or the database in it."""
    return _database(path).is_file()


def read(path: Path) -> CaptionDataset:
    """Read the photos of a folder of corrections that have a caption; an image's id is the name that it came with.

    The folder may be in use by a server.
    """
    issues = DatasetIssues(path)
    records = issues.collect([_database(path)], lambda database, _: _records(database))
    if not records and not issues.problems:
        issues.problems.append(f"{path} holds no photo with a caption yet; {check_on_page(path)}.")
    return issues.dataset("corrections", records)


def draw_correction_splits(states: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The split of each photo by its id: train or val for those that are `CHECKED`, "unchecked" for all others.

    Args:
        states: id and status of each photo.
    """
    states = list(states)
    drawn = draw_splits((image_id for image_id, status in states if status in CHECKED), val=VAL_SHARE, test=0)
    return {image_id: drawn.get(image_id, UNCHECKED) for image_id, _ in states}


def _database(path: Path) -> Path:
    return path if path.name == DATABASE else path / DATABASE


def _records(database: Path) -> list[CaptionRecord]:
    with closing(connect(database)) as connection, translated_errors(database, connection):
        check_database(connection, database)
        content = connection.execute("SELECT * FROM corrections WHERE caption <> '' ORDER BY number").fetchall()
    rows = [values_of(row, database) for row in content]
    splits = draw_correction_splits((row["id"], row["status"]) for row in rows)
    photos, names = database.parent / PHOTOS, Counter(row["name"] for row in rows)
    return [
        CaptionRecord(
            row["name"] if names[row["name"]] == 1 else Path(row["file"]).stem,
            photos / row["file"],
            splits[row["id"]],
            (row["caption"],),
        )
        for row in rows
    ]


def values_of(row: sqlite3.Row, database: Path) -> dict[str, Any]:
    """The cells of a row by column, `file` without any folder; a StorageError if they are none of ours."""
    values = dict(zip(row.keys(), row, strict=True))
    is_ours = values.keys() == _COLUMNS.keys() and all(isinstance(values[name], _COLUMNS[name]) for name in values)
    if not is_ours or values["status"] not in STATES or not 0 <= (values["confidence"] or 0) <= 1:
        raise StorageError(
            f"{database} has a row {values.get('number')} that is no correction: it was changed by something else; "
            "restore it from a backup, or delete that row."
        )
    return {**values, "file": PurePath(values["file"]).name}


# --- the database ---


def connect(database: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open a database, or raise a StorageError. One in a read-only folder, which nobody writes, is only read."""
    mode = "rwc" if create else "rw"
    if not os.access(database.parent, os.W_OK):
        is_settled = not database.with_name(f"{DATABASE}-wal").exists()
        mode = "ro&immutable=1" if is_settled else "ro"
    with translated_errors(database):
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(database.absolute()))}?mode={mode}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,  # transactions begin where we say so
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        return connection


def check_database(connection: sqlite3.Connection, database: Path) -> None:
    """Raise a StorageError if a database is of another program or a later version, or damaged."""
    with translated_errors(database):
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        kind = connection.execute("SELECT type FROM sqlite_master WHERE name = 'corrections'").fetchone()
    if application != APPLICATION or kind is None or kind["type"] != "table":
        raise StorageError(
            f"{database} is a database of another program; choose another folder for corrections, or move it away."
        )
    if version != SCHEMA_VERSION:
        raise StorageError(
            f"{database} has version {version}, and version {SCHEMA_VERSION} is read here; upgrade showtell."
        )


_REMEDIES = {
    "SQLITE_NOTADB": "is damaged, or no database at all; move it away with its files -wal and -shm, and restore it "
    "from a backup: the photos beside it are not touched.",
    "SQLITE_CORRUPT": "is damaged; restore it from a backup, or take out what can still be read with: sqlite3 "
    f"{DATABASE} .recover",
    "SQLITE_FULL": "cannot be written: the disk is full; make room, and repeat what was not confirmed.",
    "SQLITE_BUSY": f"has been in use by another process for {BUSY_SECONDS} seconds; try again.",
    "SQLITE_INTERRUPT": f"takes over {BUSY_SECONDS} seconds for an answer: it was changed by something else; restore "
    "it from a backup, or take out the triggers and columns that were added.",
    "SQLITE_READONLY": "cannot be written; change the permissions of its folder, or choose another.",
}


@contextmanager
def translated_errors(database: Path, connection: sqlite3.Connection | None = None) -> Iterator[None]:
    """Inside the block, SQLite's errors are `StorageError`s that say what to do; so is work of over `BUSY_SECONDS`."""
    until = time.monotonic() + BUSY_SECONDS
    if connection is not None:
        connection.set_progress_handler(lambda: time.monotonic() > until, 100_000)
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "")
        other = f"cannot be used: {first_line(error)}; check its folder and the disk."
        remedy = next((remedy for name, remedy in _REMEDIES.items() if code.startswith(name)), other)
        raise StorageError(f"{database} {remedy}") from error
