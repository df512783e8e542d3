"""A table of captions: a CSV file beside its images, with a line of column names and then a line per caption.

Captions of one image stand in lines of their own, or in columns caption_1, caption_2 and so on.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path

from showtell.datasets.caption_rows import CaptionRows, Columns
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.source_files import first_line, list_files
from showtell.datasets.splits import sort_by_split, split_of_file
from showtell.errors import DataError, summarise
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

    Images are searched in the folder of the table and in `images/`. Without any splits, these are drawn by the names
    of the images.
    """
    issues = DatasetIssues(path)
    tables = _tables(path)
    corrections = [file for file in tables if len(tables) > 1 and _is_correction_table(file)]
    for file in corrections:
        del tables[file]
        issues.warnings.append(
            f"{issues.display(file)} is a table of corrections and skipped; to train on it, name the file."
        )
    unsplit = [file for file, (_, columns) in tables.items() if columns.split is None and not split_of_file(file.stem)]
    if len(tables) > 1 and unsplit:
        issues.problems.append(
            f"{path} holds {len(tables)} tables of captions, and {summarise(map(issues.display, unsplit))} says "
            "nothing about splits; join them to one, add a column split, or name them train.csv, val.csv, test.csv."
        )
        tables = {}
    return issues.dataset("table", issues.collect(tables, lambda file, _: _read_table(file, *tables[file], issues)))


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


def _is_correction_table(file: Path) -> bool:
    """Whether `showtell caption --format corrections` wrote this table (`cli/caption_formats.py`)."""
    return columns_of(file) == list(CORRECTIONS)


def columns_of(file: Path) -> list[str] | None:
    """The column names of a CSV or TSV file, for a message; None for any other file."""
    if file not in list_files(file, _SUFFIXES):
        return None
    line = first_line(file)
    return max((_cells(line, delimiter) for delimiter in _DELIMITERS), key=len)


# --- which files, which columns ---


def _tables(path: Path) -> dict[Path, tuple[str, Columns]]:
    """The tables of captions at a path, each with its delimiter and what its columns hold."""
    files = [file for file in list_files(path, _SUFFIXES) if not file.name.startswith(".")]
    recognised = {file: _columns(first_line(file)) for file in sort_by_split(files)}
    return {file: columns for file, columns in recognised.items() if columns}


def _columns(line: str) -> tuple[str, Columns] | None:
    """The delimiter of a header and the columns that it names; None if no delimiter gives such columns.

    csv.Sniffer does not help here: it counts delimiters, and captions have more commas than tables.
    """
    for delimiter in _DELIMITERS:
        columns = Columns.of(_cells(line, delimiter))
        if columns is not None:
            return delimiter, columns
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


# --- one table ---


def _rows(file: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its first line.

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


def _read_table(file: Path, delimiter: str, columns: Columns, issues: DatasetIssues) -> list[CaptionRecord]:
    rows = CaptionRows(file, issues)
    too_long = []
    parsed = _rows(file, read_text(file, "CSV"), delimiter)
    next(parsed, None)  # the header
    for line, row in parsed:
        if any(map(str.strip, row[columns.count :])):
            too_long.append(line)
            continue
        row += [""] * (columns.count - len(row))
        rows.add(
            line,
            from_text_cell(row[columns.image]),
            [from_text_cell(row[index]) for index in columns.captions],
            "" if columns.split is None else row[columns.split],
            "" if columns.id is None else row[columns.id],
        )
    if too_long:
        issues.problems.append(
            f"{issues.display(file)} has more cells than columns {rows.locate(too_long)}; "
            "a caption with a comma stands in quotation marks."
        )
    return rows.records([file.parent, file.parent / "images"], "a column split would choose them")
