"""The text of a file, which is UTF-8, or the sentence that says where it is not."""

from __future__ import annotations

import re
from pathlib import Path

from showtell.errors import DataError
from showtell.files import require_regular_file

_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_LINE_END = re.compile(rb"\r\n|\r|\n")
_START = 65536  # bytes that are enough to see what a file is


def read_text(file: Path, form: str) -> str:
    """The text of a file, without the mark that some tools begin it with.

    Args:
        file: to be read.
        form: what it should be saved as, for the message: "CSV".

    Raises:
        DataError: it is not UTF-8 or has null bytes; the message names the line.
    """
    require_regular_file(file)
    content = file.read_bytes()
    if content.startswith(_UTF_16_MARKS):
        raise DataError(f"{file} is in UTF-16; save it as {form} in UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = _line(content, error.start)
        raise DataError(f"{file} is not in UTF-8: line {line} cannot be read; save it as {form} in UTF-8.") from error
    if "\0" in text:
        line = _line(content, content.index(b"\0"))
        raise DataError(f"{file} has null bytes, the first on line {line}; save it as {form} in UTF-8.")
    return text


def read_start(file: Path) -> str:
    """The first 64 kB of a file as text, whatever they are: enough to see what it is."""
    require_regular_file(file)
    with file.open("rb") as stream:
        start = stream.read(_START)
    encoding = "utf-16" if start.startswith(_UTF_16_MARKS) else "utf-8-sig"
    return start.decode(encoding, errors="replace")


def first_line(file: Path) -> str:
    """The first line of a file that is not empty, as far as 64 kB reach."""
    return re.split(r"[\r\n]+", read_start(file).lstrip("\r\n"), maxsplit=1)[0]


def _line(content: bytes, place: int) -> int:
    """The number of the line, from 1, in which a byte stands."""
    return len(_LINE_END.findall(content, 0, place)) + 1
