"""A table of captions: a CSV file beside its images, with a line of column names and then a line per caption.

Captions of one image stand in lines of their own, or in columns caption_1, caption_2 and so on.
"""

from __future__ import annotations

import csv
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from showtell.datasets.findings import Findings, counted
from showtell.datasets.image_files import ImageFiles
from showtell.datasets.records import CaptionDataset, Record
from showtell.datasets.splits import draw_splits, drawn_warning, split_name, split_of_file, split_rank
from showtell.errors import DataError, summarise
from showtell.images.photo import is_photo_name

EXAMPLE = "captions.csv with the lines image,caption and dog.jpg,A dog runs. beside dog.jpg"

# Column names as people write them, the likeliest first; case, spaces and hyphens do not count.
# image_id names the file only where no other column does.
_IMAGE = (
    *("image", "image_file", "image_filename", "image_file_name", "image_path", "image_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "img", "photo", "picture", "image_id"),
)
_CAPTION = ("caption", "sentence", "text", "description", "comment")
_SPLIT = ("split", "subset", "partition")
_ID = ("image_id", "imageid", "img_id", "id")
_DELIMITERS = ",;\t"
_SUFFIXES = (".csv", ".tsv")
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def recognises(path: Path) -> bool:
    """Whether this is a table with a column for images and one for captions, or a folder that has some."""
    return bool(_tables(path))


def read(path: Path) -> CaptionDataset:
    """Read the table of a folder, or one table; several only where each says for which splits it is.

    Images are looked for in the folder of the table and in `images/`. Where nothing says anything of splits,
    they are drawn by the images' names.
    """
    findings = Findings(path)
    records: list[Record] = []
    tables = _tables(path)
    unsplit = [file for file, columns in tables.items() if columns.split is None and not split_of_file(file.stem)]
    if len(tables) > 1 and unsplit:
        findings.problems.append(
            f"{path} holds {len(tables)} tables of captions, and {summarise(map(findings.shown, unsplit))} says "
            "nothing of splits; join them to one, add a column split, or name them train.csv, val.csv, test.csv."
        )
        tables = {}
    for file, columns in tables.items():
        try:
            records.extend(_read_table(file, columns, findings))
        except DataError as error:
            findings.problems.append(str(error))
    return CaptionDataset(path, "table", tuple(records), tuple(findings.problems), tuple(findings.warnings))


def columns_of(file: Path) -> list[str] | None:
    """The column names of a CSV or TSV file, for a message; None for any other file."""
    if not _is_table(file):
        return None
    line = _first_line(file)
    return max((_cells(line, delimiter) for delimiter in _DELIMITERS), key=len)


# --- which files, which columns ---


@dataclass(frozen=True)
class _Columns:
    """Which columns of a table hold what, by their places from 0."""

    delimiter: str
    count: int
    image: int
    captions: tuple[int, ...]
    split: int | None
    id: int | None


def _tables(path: Path) -> dict[Path, _Columns]:
    """The tables of captions at a path, with what their columns hold."""
    if path.is_file():
        files = [path]
    else:
        names = os.listdir(path)  # noqa: PTH208 (most are images: no need of a Path for each)
        files = [path / name for name in sorted(names) if name.lower().endswith(_SUFFIXES)]
        files.sort(key=lambda file: split_rank(split_of_file(file.stem) or ""))
    read = {file: _columns(_first_line(file)) for file in files if _is_table(file)}
    return {file: columns for file, columns in read.items() if columns}


def _is_table(file: Path) -> bool:
    return file.suffix.lower() in _SUFFIXES and not file.name.startswith(".") and file.is_file()


def _columns(line: str) -> _Columns | None:
    """The columns that a header names, cut by the delimiter that makes sense of it; None if none does.

    csv.Sniffer is no help here: it counts delimiters, and captions have more commas than tables.
    """
    for delimiter in _DELIMITERS:
        names = [re.sub(r"[\s.-]+", "_", name.strip().lower()) for name in _cells(line, delimiter)]
        image, captions = _first(names, _IMAGE), _caption_columns(names)
        if image is not None and captions:
            return _Columns(delimiter, len(names), image, captions, _first(names, _SPLIT), _first(names, _ID))
    return None


def _cells(line: str, delimiter: str) -> list[str]:
    return next(csv.reader([line], delimiter=delimiter), [])


def _first(names: Sequence[str], wanted: Iterable[str]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _caption_columns(names: Sequence[str]) -> tuple[int, ...]:
    """The columns caption, captions, caption_1, caption2 and so on, of the first such word that occurs."""
    for word in _CAPTION:
        pattern = re.compile(rf"{word}s?_?[0-9]*")
        places = tuple(place for place, name in enumerate(names) if pattern.fullmatch(name))
        if places:
            return places
    return ()


# --- the text of a table ---


def _first_line(file: Path) -> str:
    with file.open("rb") as stream:
        start = stream.read(65536)
    encoding = "utf-16" if start.startswith(_UTF_16_MARKS) else "utf-8-sig"
    lines = re.split(r"[\r\n]+", start.decode(encoding, errors="replace").lstrip("\r\n"), maxsplit=1)
    return lines[0]


def _text(file: Path) -> str:
    """The text of a table.

    Raises:
        DataError: it is not UTF-8; the message names the line.
    """
    content = file.read_bytes()
    if content.startswith(_UTF_16_MARKS):
        raise DataError(f"{file} is in UTF-16; save it as CSV in UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = len(re.findall(rb"\r\n|\r|\n", content[: error.start])) + 1
        raise DataError(f"{file} is not in UTF-8: line {line} cannot be read; save it as CSV in UTF-8.") from error


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


# --- one table ---


@dataclass
class _Image:
    """What a table says of one image."""

    captions: list[str] = field(default_factory=list)
    splits: dict[str, None] = field(default_factory=dict)  # as a set that keeps its order; so too the ids
    ids: dict[str, None] = field(default_factory=dict)


def _read_table(file: Path, columns: _Columns, findings: Findings) -> Iterator[Record]:
    images = _read_rows(file, columns, findings)
    splits = _splits(file, images, findings)
    ids = _ids(file, images, findings)
    files = ImageFiles([file.parent, file.parent / "images"])
    used: dict[str, set[str]] = {}  # names of found images by their folder
    for name, image in images.items():
        path = files.find([name])
        used.setdefault(str(path.parent), set()).add(path.name)
        yield Record(ids.get(name, name), path, splits.get(name, ""), tuple(image.captions))
    shown = findings.shown(file)
    files.report_guesses(findings, shown)
    idle = [
        findings.shown(Path(folder, name))
        for folder, names in used.items()
        for name in sorted(files.listing(folder) - names)
        if is_photo_name(name)
    ]
    if idle:
        findings.warnings.append(
            f"{counted(len(idle), 'image')} beside the others {'is' if len(idle) == 1 else 'are'} not in {shown} "
            f"and left out: {summarise(idle)}."
        )


def _read_rows(file: Path, columns: _Columns, findings: Findings) -> dict[str, _Image]:
    images: dict[str, _Image] = {}
    too_long, nameless, without_caption = [], [], []
    rows = _rows(file, _text(file), columns.delimiter)
    next(rows)  # the header
    for line, row in rows:
        if any(map(str.strip, row[columns.count :])):
            too_long.append(line)
            continue
        row += [""] * (columns.count - len(row))
        captions = [row[place] for place in columns.captions if row[place].strip()]
        if not row[columns.image].strip():
            nameless.append(line)
            continue
        name = posixpath.normpath(row[columns.image].strip().replace("\\", "/"))
        image = images.setdefault(name, _Image())
        image.captions.extend(captions)
        if not captions:
            without_caption.append((line, image))
        for place, seen in ((columns.split, image.splits), (columns.id, image.ids)):
            if place is not None and row[place].strip():
                seen[row[place].strip()] = None
    shown = findings.shown(file)
    if too_long:
        findings.problems.append(
            f"{shown} has more cells than columns on {_lines(too_long)}; "
            "a caption with a comma stands in quotation marks."
        )
    if nameless:
        findings.problems.append(f"{shown} names no image on {_lines(nameless)}.")
    empty = [line for line, image in without_caption if image.captions]
    if empty:
        findings.warnings.append(f"{shown} has no caption on {_lines(empty)}, left out.")
    return images


def _lines(numbers: Sequence[int]) -> str:
    return f"line{'s' if len(numbers) > 1 else ''} {summarise(numbers)}"


def _splits(file: Path, images: dict[str, _Image], findings: Findings) -> dict[str, str]:
    """The split of each image: of its rows, else of the file's name, else drawn."""
    shown = findings.shown(file)
    of_file = split_of_file(file.stem)
    if not any(image.splits for image in images.values()):
        if of_file:
            return dict.fromkeys(images, of_file)
        drawn = draw_splits(images)
        if drawn:
            findings.warnings.append(drawn_warning(shown, drawn.values(), "a column split would choose them"))
        return drawn
    splits, several, none = {}, [], []
    for name, image in images.items():
        names = list(dict.fromkeys(map(split_name, image.splits)))
        if len(names) > 1:
            several.append(f"{name} ({', '.join(names)})")
        elif not names:
            none.append(name)
        splits[name] = names[0] if names else ""
    if several:
        findings.problems.append(
            f"{shown} puts {counted(len(several), 'image')} in more than one split: {summarise(several)}."
        )
    if none:
        findings.problems.append(
            f"{shown} gives {counted(len(none), 'image')} no split, though it has a column for it: {summarise(none)}."
        )
    return splits


def _ids(file: Path, images: dict[str, _Image], findings: Findings) -> dict[str, str]:
    """The id of each image where the table has a column of them; none where that numbers the rows instead."""
    if not any(image.ids for image in images.values()):
        return {}
    shown = findings.shown(file)
    if any(len(image.ids) > 1 for image in images.values()):
        findings.warnings.append(
            f"The ids in {shown} number captions rather than images, so the images go by their file names."
        )
        return {}
    none = [name for name, image in images.items() if not image.ids]
    if none:
        findings.problems.append(
            f"{shown} gives {counted(len(none), 'image')} no id, though it has a column for it: {summarise(none)}."
        )
    return {name: next(iter(image.ids)) for name, image in images.items() if image.ids}
