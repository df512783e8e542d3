"""Files that datasets are read from: listing them, and telling from their first bytes what they are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from showtell.files import read_bytes

MAX_JSON_FILES = 50  # a folder with more JSON files than this holds one per image, not datasets

_START = 65536  # bytes that are enough to tell what a file is


def list_files(path: Path, suffixes: tuple[str, ...], subfolders: Sequence[str] = ("",)) -> list[Path]:
    """The regular files with one of these suffixes: the path itself, or those in a folder, by name.

    Args:
        path: a file or a folder.
        suffixes: in lower case, each with its dot.
        subfolders: of a folder, those to look into; "" for the folder itself. Hidden files are skipped.
    """
    if not path.is_dir():
        return [path] if path.suffix.lower() in suffixes and path.is_file() else []
    files = []
    for folder in (path / subfolder for subfolder in subfolders):
        names = sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208 (most are images: no Paths)
        files += [folder / name for name in names if name.lower().endswith(suffixes) and not name.startswith(".")]
    return [file for file in files if file.is_file()]


def names_in(folder: str) -> frozenset[str]:
    """The names in a folder; none where there is no such folder."""
    try:
        return frozenset(os.listdir(folder or "."))  # noqa: PTH208 (names are enough)
    except (OSError, ValueError):  # ValueError: a null byte or a lone surrogate in the name
        return frozenset()


def as_text(name: str) -> str:
    """A file name as valid text: bytes that are not UTF-8, which Python has as half characters, are escaped.

    >>> as_text("dog" + chr(0xDCFF) + ".jpg")
    'dog\\\\xff.jpg'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_start(file: Path) -> str:
    """The first 64 kB of a file as text, whatever they are: enough to tell what it is."""
    start = read_bytes(file, _START)
    encoding = "utf-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return start.decode(encoding, errors="replace")


def first_line(file: Path) -> str:
    """The first line of a file that is not empty, up to 64 kB."""
    return re.split(r"[\r\n]+", read_start(file).lstrip("\r\n"), maxsplit=1)[0]
