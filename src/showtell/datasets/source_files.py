"""Files that datasets are read from: listing them, opening them, and decoding their text, which is UTF-8."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from showtell.errors import DataError
from showtell.files import parse_json

MAX_JSON_FILES = 50  # a folder with more JSON files than this holds one per image, not datasets

_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LINE_END = re.compile(rb"\r\n|\r|\n")
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


def open_file(file: Path) -> BinaryIO:
    """Open a regular file to read it.

    Raises:
        DataError: it is a pipe, which may have no writer, or a device, which may have no end.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        raise DataError(f"{file} is a device, a pipe or a socket, not a file.")
    return file.open("rb")


def read_bytes(file: Path, limit: int = -1) -> bytes:
    """The content of a regular file, or its first bytes. Files of no size, as in /proc, which may wait, are empty."""
    with open_file(file) as stream:
        return stream.read(limit) if os.fstat(stream.fileno()).st_size else b""


def read_text(file: Path, form: str) -> str:
    """The text of a file, without a byte order mark.

    Args:
        file: to be read.
        form: what it should be saved as, for the message: "CSV".

    Raises:
        DataError: it is not UTF-8 or has null bytes; the message names the line.
    """
    content = read_bytes(file)
    if content.startswith(_UTF_16_MARKS):
        raise DataError(f"{file} is in UTF-16; save it as {form} in UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = _line_of(content, error.start)
        raise DataError(f"{file} is not in UTF-8: line {line} cannot be read; save it as {form} in UTF-8.") from error
    if "\0" in text:
        line = _line_of(content, content.index(b"\0"))
        raise DataError(f"{file} has null bytes, the first on line {line}; save it as {form} in UTF-8.")
    return text


def read_json(file: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The content of a JSON file; `object_hook` replaces each object by what it returns.

    Raises:
        DataError: it is empty, not UTF-8 or not JSON; the message names the line.
    """
    text = read_text(file, "JSON")
    if not text.strip():
        raise DataError(f"{file} is empty; it should hold JSON.")
    return parse_json(text, str(file), object_hook)


def as_text(name: str) -> str:
    """A file name as valid text: bytes that are not UTF-8, which Python has as half characters, are escaped.

    >>> as_text("dog" + chr(0xDCFF) + ".jpg")
    'dog\\\\xff.jpg'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_start(file: Path) -> str:
    """The first 64 kB of a file as text, whatever they are: enough to tell what it is."""
    start = read_bytes(file, _START)
    encoding = "utf-16" if start.startswith(_UTF_16_MARKS) else "utf-8-sig"
    return start.decode(encoding, errors="replace")


def first_line(file: Path) -> str:
    """The first line of a file that is not empty, up to 64 kB."""
    return re.split(r"[\r\n]+", read_start(file).lstrip("\r\n"), maxsplit=1)[0]


def _line_of(content: bytes, offset: int) -> int:
    """The number of the line, from 1, of a byte."""
    return len(_LINE_END.findall(content, 0, offset)) + 1
