"""A table of captions: a CSV file beside its images, with a line of column names and then a line per caption.

Captions of one image stand in lines of their own, or in columns caption_1, caption_2 and so on.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

from showtell.datasets.entries import CaptionRows, Columns, read_files
from showtell.datasets.image_files import first_line, list_files
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import sort_by_split, split_of_file
from showtell.errors import DataError
from showtell.files import read_text

EXAMPLE = "captions.csv with the lines image,caption and dog.jpg,A dog runs. beside dog.jpg"

# The columns of a table that `showtell caption --format corrections` writes for a person to correct, and a server for
# what they corrected.
CORRECTIONS = ("image", "caption", "confidence", "split")

# What spreadsheets take for a formula; cells that begin so are written with an apostrophe before, and read without it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_DELIMITERS = ",;\t"
_SUFFIXES = (".csv", ".tsv")


def recognises(path: Path) -> bool:
    """Whether this is a table with a column for images and one for captions, or a folder with such tables."""
    return bool(_tables(path))


def read(path: Path) -> CaptionDataset:
    """Read a table, or the tables of a folder if each gives the splits of its images.

    Images are searched in the folder of the table and in `images/`.
    """
    issues, tables = DatasetIssues(path), _tables(path)
    corrections = [file for file in tables if len(tables) > 1 and columns_of(file) == list(CORRECTIONS)]
    named = "left out, for it holds corrections; name the file to train on it"
    issues.warning(map(issues.display, corrections), "table|tables", named)
    files = [file for file in tables if file not in corrections]
    unsplit = [file for file in files if tables[file][1].split is None and not split_of_file(file.stem)]
    return read_files("table", files, issues, lambda file, _: _read_table(file, *tables[file], issues), unsplit)


def as_text_cell(text: str) -> str:
    """A text as a cell that no spreadsheet computes. `from_text_cell` is the way back.

    >>> as_text_cell("=1+1")
    "'=1+1"
    """
    return f"'{text}" if _FORMULA.match(text) else text


def from_text_cell(cell: str) -> str:
    """The text of a cell that `as_text_cell` made."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def correction_lines(rows: Iterable[tuple[str, str, float | None, str]]) -> Iterator[str]:
    """The lines of a table of corrections: rows of image, caption, confidence and split."""
    yield "\ufeff" + csv_line(*CORRECTIONS)  # the mark tells spreadsheets that this is UTF-8
    for image, caption, confidence, split in rows:
        shown = "" if confidence is None else f"{confidence:.3f}"
        yield csv_line(as_text_cell(image), as_text_cell(caption), shown, split)


def csv_line(*cells: str) -> str:
    """Cells as a line of CSV."""
    stream = StringIO()
    csv.writer(stream, lineterminator="\n").writerow(cells)
    return stream.getvalue()


def columns_of(file: Path) -> list[str] | None:
    """The column names of a CSV or TSV file, for a message; None for any other file."""
    if file not in list_files(file, _SUFFIXES):
        return None
    line = first_line(file)
    return max((_cells(line, delimiter) for delimiter in _DELIMITERS), key=len)


def _tables(path: Path) -> dict[Path, tuple[str, Columns]]:
    """The tables of captions at a path, each with its delimiter and what its columns hold."""
    recognised = {file: _columns(first_line(file)) for file in sort_by_split(list_files(path, _SUFFIXES))}
    return {file: columns for file, columns in recognised.items() if columns}


def _columns(line: str) -> tuple[str, Columns] | None:
    """The delimiter of a header and the columns that it names; None if no delimiter gives such columns.

    csv.Sniffer does not help here: it counts delimiters, and captions have more commas than tables.
    """
    parsed = ((delimiter, Columns.of(tuple(_cells(line, delimiter)))) for delimiter in _DELIMITERS)
    return next(((delimiter, columns) for delimiter, columns in parsed if columns is not None), None)


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _read_table(file: Path, delimiter: str, columns: Columns, issues: DatasetIssues) -> list[CaptionRecord]:
    rows = CaptionRows(file, issues, 'dog.jpg,"A dog, running."')
    reader = csv.reader(StringIO(read_text(file, "CSV"), newline=""), delimiter=delimiter, strict=True)
    line, has_header = 1, False
    try:
        for row in reader:
            number, line = line, reader.line_num + 1
            if not any(map(str.strip, row)):
                continue
            if not has_header:
                has_header = True
            elif any(map(str.strip, row[columns.count :])):
                rows.unusable.append(number)
            else:
                rows.add(number, columns, [*map(from_text_cell, row), *[""] * (columns.count - len(row))])
    except csv.Error as error:
        raise DataError(
            f"{file} cannot be read from line {line} on ({error}); a caption with quotation marks stands in "
            'quotation marks itself, with those inside doubled: "A ""stop"" sign."'
        ) from error
    return rows.records([file.parent, file.parent / "images"], "a column split")
