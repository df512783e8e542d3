"""A table of captions: a CSV file beside its images, with a line of column names and then a line per caption.

Captions of one image stand in lines of their own, or in columns caption_1, caption_2 and so on.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from showtell.datasets.encoding import first_line, read_text
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.listing import Listing, Roles
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import split_of_file, split_rank
from showtell.errors import DataError, summarise

EXAMPLE = "captions.csv with the lines image,caption and dog.jpg,A dog runs. beside dog.jpg"

# The columns of a table that `showtell caption --correct` writes for a person to mend and to train on.
CORRECTIONS = ("image", "caption", "confidence", "split")

# What spreadsheets take for a formula; cells that begin so are written with an apostrophe before, and read without it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_DELIMITERS = ",;\t"
_SUFFIXES = (".csv", ".tsv")


def recognises(path: Path) -> bool:
    """Whether this is a table with a column for images and one for captions, or a folder that has some."""
    return bool(_tables(path))


def read(path: Path) -> CaptionDataset:
    """Read the table of a folder, or one table; several only where each says for which splits it is.

    Images are looked for in the folder of the table and in `images/`. Where nothing says anything of splits,
    they are drawn by the images' names.
    """
    issues = DatasetIssues(path)
    records: list[CaptionRecord] = []
    tables = _tables(path)
    corrections = [file for file in tables if len(tables) > 1 and _is_of_corrections(file)]
    for file in corrections:
        del tables[file]
        issues.warnings.append(f"{issues.shown(file)} is a table of caption --correct: name the file to train on it.")
    unsplit = [file for file, (_, roles) in tables.items() if roles.split is None and not split_of_file(file.stem)]
    if len(tables) > 1 and unsplit:
        issues.problems.append(
            f"{path} holds {len(tables)} tables of captions, and {summarise(map(issues.shown, unsplit))} says "
            "nothing of splits; join them to one, add a column split, or name them train.csv, val.csv, test.csv."
        )
        tables = {}
    for file, (delimiter, roles) in tables.items():
        try:
            records.extend(_read_table(file, delimiter, roles, issues))
        except DataError as error:
            issues.problems.append(str(error))
    return issues.dataset("table", records)


def as_text_cell(text: str) -> str:
    """A text as a cell that no spreadsheet computes. `from_text_cell` is the way back.

    >>> as_text_cell("=1+1")
    "'=1+1"
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_text_cell(cell: str) -> str:
    """The text of a cell that `as_text_cell` made."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_of_corrections(file: Path) -> bool:
    """Whether `showtell caption --correct` wrote this table (`cli/caption_formats.py`)."""
    return columns_of(file) == list(CORRECTIONS)


def columns_of(file: Path) -> list[str] | None:
    """The column names of a CSV or TSV file, for a message; None for any other file."""
    if not _is_table(file):
        return None
    line = first_line(file)
    return max((_cells(line, delimiter) for delimiter in _DELIMITERS), key=len)


# --- which files, which columns ---


def _tables(path: Path) -> dict[Path, tuple[str, Roles]]:
    """The tables of captions at a path, each with its delimiter and what its columns hold."""
    if path.is_file():
        files = [path]
    else:
        names = os.listdir(path)  # noqa: PTH208 (most are images: no need of a Path for each)
        files = [path / name for name in sorted(names) if name.lower().endswith(_SUFFIXES)]
        files.sort(key=lambda file: split_rank(split_of_file(file.stem) or ""))
    read = {file: _columns(first_line(file)) for file in files if _is_table(file)}
    return {file: columns for file, columns in read.items() if columns}


def _is_table(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()


def _columns(line: str) -> tuple[str, Roles] | None:
    """The delimiter that makes sense of a header, and the columns that it names; None if none does.

    csv.Sniffer is no help here: it counts delimiters, and captions have more commas than tables.
    """
    for delimiter in _DELIMITERS:
        roles = Roles.of(_cells(line, delimiter))
        if roles is not None:
            return delimiter, roles
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


# --- one table ---


def _rows(file: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of the line on which it begins.

    Raises:
        DataError: quotation marks that do not match; the message names the line.
    """
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise DataError(
                f"{file} cannot be read from line {line} on ({error}); a caption with quotation marks stands in "
                'quotation marks itself, with those inside doubled: "A ""stop"" sign."'
            ) from error
        if any(map(str.strip, row)):
            yield line, row


def _read_table(file: Path, delimiter: str, roles: Roles, issues: DatasetIssues) -> list[CaptionRecord]:
    listing = Listing(file, issues)
    too_long = []
    rows = _rows(file, read_text(file, "CSV"), delimiter)
    next(rows, None)  # the header
    for line, row in rows:
        if any(map(str.strip, row[roles.count :])):
            too_long.append(line)
            continue
        row += [""] * (roles.count - len(row))
        listing.add(
            line,
            from_text_cell(row[roles.image]),
            [from_text_cell(row[index]) for index in roles.captions],
            "" if roles.split is None else row[roles.split],
            "" if roles.id is None else row[roles.id],
        )
    if too_long:
        issues.problems.append(
            f"{issues.shown(file)} has more cells than columns {listing.at(too_long)}; "
            "a caption with a comma stands in quotation marks."
        )
    return listing.records([file.parent, file.parent / "images"], "a column split would choose them")
