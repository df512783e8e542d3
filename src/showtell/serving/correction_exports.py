"""Corrections as files, each a dataset: a table beside the client's photos, JSON lines, a zip with photos and texts."""

from __future__ import annotations

import json
import re
import unicodedata
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Literal, cast

from showtell.datasets.table import correction_lines
from showtell.images.photo_files import IMAGE_SUFFIXES
from showtell.serving.corrections import Correction, CorrectionStore

Format = Literal["csv", "jsonl", "zip"]

_CHUNK = 2**20  # bytes of a photo that are in memory at a time
_MAX_STEM = 100  # bytes of a name in a zip, without its suffix: a name has 255 at most, and its folder is unknown
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # names that Windows has taken


@dataclass(frozen=True)
class Export:
    """A file that is made while it is sent."""

    name: str
    media_type: str
    content: Iterator[bytes]


def export(store: CorrectionStore, format: Format, statuses: Collection[str] = ()) -> Export:
    """Rows of one moment as a file.

    Args:
        store: that has them.
        format: "csv": the table that `showtell caption --format corrections` writes, with the names that the client's
            photos have, so that its place is beside them; "jsonl": all that is known, a row in a line, with names of
            the folder of the store; "zip": `photos/`, a text beside each photo, and the table.
        statuses: of the rows; empty: any.

    Raises:
        StorageError: the store cannot be read; for a zip also: a photo is missing.
    """
    rows, splits = store.rows(statuses)
    if format == "zip":
        photos = [store.photo_of(row) for row in rows]  # what is missing is told before the first byte is sent
        return Export("corrections.zip", "application/zip", _as_zip(rows, splits, photos))
    media_type, write = _TEXTS[format]
    return Export(f"corrections.{format}", media_type, (text.encode() for text in write(rows, splits)))


def _as_csv(rows: Iterable[Correction], splits: Mapping[str, str]) -> Iterator[str]:
    rows = list(rows)
    names = table_names(rows)
    return correction_lines(
        (name, row.caption, row.confidence, splits[row.id]) for name, row in zip(names, rows, strict=True)
    )


def table_names(rows: Iterable[Correction]) -> list[str]:
    """What a table calls photos: as the client does, where that names a file below the table and no other photo."""
    used: dict[str, int] = {}
    names = []
    for row in rows:
        path = PurePosixPath(row.name)
        is_below = path.name and str(path) == row.name and not path.is_absolute() and ".." not in path.parts
        if not is_below or "\\" in row.name or row.name[1:2] == ":":
            path = PurePosixPath(_safe_stem(row.name) + Path(row.file).suffix)
        names.append(_different(str(path.with_suffix("")), path.suffix, used, fold=str))
    return names


def _as_json_lines(rows: Iterable[Correction], splits: Mapping[str, str]) -> Iterator[str]:
    return (json.dumps({**row.model_dump(), "split": splits[row.id]}, ensure_ascii=False) + "\n" for row in rows)


_TEXTS: dict[str, tuple[str, Callable[[Iterable[Correction], Mapping[str, str]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "jsonl": ("application/jsonl; charset=utf-8", _as_json_lines),
}


# --- zip ---


class _Pieces:
    """A stream that zipfile writes to; `take` returns what came since the last time."""

    def __init__(self) -> None:
        self._content = bytearray()

    def write(self, content: bytes) -> int:
        self._content += content
        return len(content)

    def flush(self) -> None:
        """There is nothing behind it."""

    def take(self) -> bytes:
        taken = bytes(self._content)
        self._content.clear()
        return taken


def _as_zip(rows: list[Correction], splits: Mapping[str, str], photos: list[Path]) -> Iterator[bytes]:
    pieces = _Pieces()
    stems = safe_stems(row.name for row in rows)
    named = [f"photos/{stem}{photo.suffix}" for stem, photo in zip(stems, photos, strict=True)]
    table = correction_lines(
        (name, row.caption, row.confidence, splits[row.id]) for name, row in zip(named, rows, strict=True)
    )
    # Photos are compressed already.
    with zipfile.ZipFile(cast("zipfile._ZipWritable", pieces), "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("corrections.csv", "".join(table))
        for name, stem, row, photo in zip(named, stems, rows, photos, strict=True):
            entry = zipfile.ZipInfo(name, datetime.fromisoformat(row.created).timetuple()[:6])
            with archive.open(entry, "w") as target, photo.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    yield pieces.take()
            if row.caption:
                archive.writestr(f"photos/{stem}.txt", f"{row.caption}\n")
                yield pieces.take()
    yield pieces.take()


def safe_stems(names: Iterable[str]) -> list[str]:
    """File names without suffix, made of what clients called their photos, that are valid everywhere and all different.

    >>> safe_stems(["dog.jpg", "../etc/DOG.png", "a:b?.jpg", "nul.png", ".."])
    ['dog', 'DOG-2', 'a_b_', '_nul', 'photo']
    """
    used: dict[str, int] = {}
    return [_different(_safe_stem(name), "", used) for name in names]


def _safe_stem(name: str) -> str:
    stem = unicodedata.normalize("NFC", re.split(r"[/\\]", name)[-1])
    if Path(stem).suffix.lower() in IMAGE_SUFFIXES:
        stem = Path(stem).stem
    stem = "".join("_" if char in '<>:"|?*' or not char.isprintable() else char for char in stem)
    stem = stem.encode("utf-8", "replace")[:_MAX_STEM].decode("utf-8", "ignore").strip(" .") or "photo"
    return f"_{stem}" if _RESERVED.fullmatch(stem) else stem


def _different(stem: str, suffix: str, used: dict[str, int], fold: Callable[[str], str] = str.casefold) -> str:
    """A name, with a number behind its stem if an equal one is used.

    Args:
        stem: of the name.
        suffix: of the name.
        used: how often each name is, as `fold` has it.
        fold: makes names equal that cannot stand beside each other.
    """
    name = f"{stem}{suffix}"
    number = used[fold(name)] = used.get(fold(name), 0) + 1
    return name if number == 1 else _different(f"{stem}-{number}", suffix, used, fold)
