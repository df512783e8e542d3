"""A table of captions: a CSV file beside its images, with a line of column names and then a line per caption.

Captions of one image stand in lines of their own, or in columns caption_1, caption_2 and so on. `Table` reads the
tables of predictions, too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice
from pathlib import Path

from showtell.datasets.entries import CaptionRows, list_below, read_files
from showtell.datasets.image_files import first_line, list_files
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import DataError, shorten, summarise
from showtell.files import not_utf8, read_text
from showtell.images.photo_files import is_image_file
from showtell.text.caption_columns import Columns

EXAMPLE = "captions.csv with the lines image,caption and dog.jpg,A dog runs. beside dog.jpg"

# The columns of a table that `showtell caption --format corrections` writes for a person to correct, and a server for
# what they corrected.
CORRECTIONS = ("image", "caption", "confidence", "split")

# What spreadsheets take for a formula; cells that begin so are written with an apostrophe before, and read without it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_DELIMITERS = ",;\t|"
_UNQUOTED = "\t|"  # delimiters of tables that may have quotation marks as letters
SUFFIXES = (".csv", ".tsv")
FORM = 'dog.jpg,"A dog, running."'  # a row, for messages
_QUOTES = (
    'a caption with quotation marks stands in quotation marks itself, with those inside doubled: "A ""stop"" sign."'
)
_ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that is not UTF-8
_LINE_END = re.compile(r"\r\n|\r|\n")
_EXCEL = re.compile(r"\s*sep=(.)\s*(?:[\r\n]+|\Z)")  # the line with which Excel tells the delimiter


def recognises(path: Path) -> bool:
    """Whether this is a table with a column for images and one for captions, or a folder with such tables."""
    return bool(_tables(path))


def read(path: Path) -> CaptionDataset:
    """Read a table, or those of a folder or else of its subfolders, beside their images or a folder `images/`."""
    issues, tables = DatasetIssues(path), _tables(path)
    corrections = [file for file in tables if len(tables) > 1 and columns_of(file) == list(CORRECTIONS)]
    named = "left out, for it holds corrections; name the file to train on it"
    issues.warning(map(issues.display, corrections), "table|tables", named)
    tables = {file: columns for file, columns in tables.items() if file not in corrections}
    return read_files("table", tables, issues, _read_table)


def as_text_cell(text: str) -> str:
    """A text as a cell that no spreadsheet computes, with an apostrophe; `from_text_cell` is the way back."""
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
    stream = StringIO(newline="")
    csv.writer(stream, lineterminator="\r\n").writerow(cells)  # which quotes either character
    return stream.getvalue().removesuffix("\r\n") + "\n"


def columns_of(file: Path) -> list[str] | None:
    """The column names of a CSV or TSV file, for a message; None for any other file."""
    if file not in list_files(file, SUFFIXES):
        return None
    line = first_line(file, _EXCEL)
    return max((_cells(line, delimiter) for delimiter in _DELIMITERS), key=len)


def _tables(path: Path) -> dict[Path, Columns]:
    """The tables of captions at a path, each with what its columns hold."""
    return list_below(path, SUFFIXES, lambda file: (_header(first_line(file, _EXCEL)) or (None, None))[1])


def _header(line: str, *, predicted: bool = False) -> tuple[str, Columns] | None:
    """The delimiter and columns of a header, or None; csv.Sniffer would count commas, most of them in captions."""
    parsed = ((sign, Columns.of(tuple(_cells(line, sign)), predicted=predicted)) for sign in _DELIMITERS)
    return next(((delimiter, columns) for delimiter, columns in parsed if columns is not None), None)


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


@dataclass(frozen=True)
class Table:
    """A table as it was read."""

    columns: Columns
    rows: list[tuple[int, list[str]]]  # number of the line, and as many cells as columns; empty rows left out
    surplus: list[int]  # numbers of the lines with more cells than columns, such as by a comma without quotation marks
    short: list[int]  # numbers of the rows that end before their caption

    @classmethod
    def read(cls, file: Path, *, predicted: bool = False) -> Table:
        """Read a table of captions, or of predictions; a DataError without such columns or with odd quotation marks.

        In tables of commas and semicolons a cell may stand in quotation marks, and have line ends in them. In tables of
        tabs and bars quotation marks are letters, unless they enclose whole cells wherever a cell begins with one.
        """
        text = read_text(file, "CSV", escape=True)
        skipped = _EXCEL.match(text)
        first = 1 + len(_LINE_END.findall(skipped[0])) if skipped else 1
        text = text[skipped.end() :] if skipped else text
        if (header := _header(first_line(file, _EXCEL), predicted=predicted)) is None:
            raise DataError(f"{file} is {describe_columns(columns_of(file) or ())}")
        delimiter, columns = header
        rows, surplus, short = [], [], []
        for number, row in islice(_rows(file, text, delimiter, columns, first), 1, None):
            if any(map(str.strip, row[columns.count :])):
                surplus.append(number)
                continue
            rows.append((number, [*map(from_text_cell, row), *[""] * (columns.count - len(row))]))
            if len(row) <= max(columns.image, columns.captions[0]):
                short.append(number)
        if _ESCAPED.search(text):  # which a name may be, but nothing else
            others = (number for number, row in rows for at, cell in enumerate(row)
                      if at != columns.image and _ESCAPED.search(cell))  # fmt: skip
            if (line := next(others, None)) is not None:
                raise not_utf8(file, line, "CSV")
        return cls(columns, rows, surplus, short)


def describe_columns(columns: Sequence[str]) -> str:
    """What a table with these columns is, which has none for images or none for captions, to end a sentence."""
    named = summarise((shorten(column, 20) for column in columns), limit=5)
    return (
        f"a table with the columns {named}, which lacks one for images or one for captions; call one column image and "
        "one caption."
    )


def _rows(file: Path, text: str, delimiter: str, columns: Columns, first: int) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table that are not empty, the header too, with the numbers of their lines."""
    line = first
    if delimiter in _UNQUOTED:
        lines = [own for own in enumerate(_LINE_END.split(text), first) if own[1].strip()]
        is_quoted = '"' in text and all(_is_quoted(own, delimiter) for _, own in lines)
        for line, own in lines:
            cells = _cells(own, delimiter) if is_quoted else own.split(delimiter)
            yield line, cells if delimiter == "\t" else [cell.strip() for cell in cells]
        return
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            number, line = line, first + reader.line_num
            if line - number > 1 and any(_holds_row(cell, row, delimiter, columns) for cell in row):
                raise DataError(f"{file}, line {number}: a quotation mark encloses the rows that follow it; {_QUOTES}")
            if any(map(str.strip, row)):
                yield number, row
    except csv.Error as error:
        raise DataError(f"{file} cannot be read from line {line} on ({error}); {_QUOTES}") from error


def _is_quoted(line: str, delimiter: str) -> bool:
    """Whether quotation marks enclose each cell of a line that begins with one."""
    try:
        return bool(next(csv.reader([line], delimiter=delimiter, strict=True)))
    except csv.Error:
        return False


def _holds_row(cell: str, row: Sequence[str], delimiter: str, columns: Columns) -> bool:
    """Whether a line of a cell is like a row: parted by delimiters, with a name of an image where the row has one."""

    def kind(name: str) -> str:
        return "file" if is_image_file(name) else re.sub(r"\d+", "0", name)

    lines = _LINE_END.split(cell)
    parts = [line.split(delimiter) for line in lines] if len(lines) > 1 else []
    names = [kind(part.strip()) for own in parts if len(own) > 1 for part in own]
    return "file" in names or any(
        len(own) == columns.count and kind(own[columns.image].strip()) == kind(row[columns.image].strip())
        for own in parts
        if columns.count > 1
    )


def _read_table(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    rows, content = CaptionRows(file, issues, FORM), Table.read(file)
    rows.unusable += content.surplus
    for number, cells in content.rows:
        rows.add(number, content.columns, cells)
    return rows.records([file.parent, file.parent / "images"], "a column split")
