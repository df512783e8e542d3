"""Flickr8k and Flickr30k: `Flickr8k.token.txt`, `results_20130124.token`, Kaggle's `captions.txt` and `results.csv`.

A line is one caption, in one of `_FORMS`; `showtell caption` writes text with tabs. The official lists beside them,
`Flickr_8k.trainImages.txt`, `Flickr_8k.devImages.txt` and `Flickr_8k.testImages.txt`, choose the splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from showtell.datasets.entries import CaptionRows, list_below, read_files
from showtell.datasets.image_files import first_line, names_in, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.files import read_text
from showtell.images.photo_files import is_image_file
from showtell.text.caption_columns import Columns

EXAMPLE = "Flickr8k.token.txt with the line dog.jpg#0<TAB>A dog runs. beside a folder images/ or Flicker8k_Dataset/"

# Of translations the names are dog.jpg#zhc#0.
_TOKEN = re.compile(r"(?P<name>[^\t]+?)(?:(?:#[a-z]+)?#\d+\t|#[a-z]+#\d+ )(?P<caption>.*)")
_TAB = re.compile(r"(?P<name>[^\t]+)\t(?P<caption>[^\t]*)(?:\t(?:\d+%[^\t]*|by a person)?)?")  # as `caption` writes
_COMMA = re.compile(r"(?P<name>[^,]+),(?P<caption>.*)")
_BAR = re.compile(r"(?P<name>[^|]+)\|\s*\d+\s*\|?(?P<caption>.*)")  # one line of Kaggle's file lacks the second bar
_FORMS = {
    _TOKEN: "dog.jpg#0<TAB>A dog runs",
    _TAB: "dog.jpg<TAB>A dog runs",
    _COMMA: "dog.jpg,A dog runs",
    _BAR: "dog.jpg| 0| A dog runs",
}
_HEADERS = ((re.compile(r"image\s*,\s*caption\s*"), _COMMA), (re.compile(r"image_name\s*\|.*\|\s*comment\s*"), _BAR))

# The files that a folder is searched for, the most likely first; lemmatised captions are read if nothing else is there.
_NAMES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"(?!.*lemma).*\.token(\.txt)?", r"captions\.txt", r"results\.csv", r".*lemma\.token(\.txt)?")
)
_SUFFIXES = (".txt", ".token", ".csv")
_COLUMNS = Columns(2, image=0, captions=(1,))  # of a line
_TEXT_FOLDERS = ("", "Flickr8k_text", "annotations")
_IMAGE_FOLDERS = (
    *("Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images", "flickr30k-images", "flickr30k_images"),
    "flickr30k_images/flickr30k_images",  # as Kaggle's archive unpacks
)


def recognises(path: Path) -> bool:
    """Whether this is a file of captions in the form of Flickr8k or Flickr30k, or a folder with one."""
    return bool(_caption_files(path))


def read(path: Path) -> CaptionDataset:
    """Read a file of captions; of a folder the first that has a published name, or else all, if they give splits."""
    return read_files("flickr", dict.fromkeys(_caption_files(path), _COLUMNS), DatasetIssues(path), _read_file)


def _caption_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() in _SUFFIXES and _form(path) else []
    listings = {path / name: sorted(names_in(str(path / name))) for name in _TEXT_FOLDERS}
    matches = [(folder, pattern, names) for folder, names in listings.items() for pattern in _NAMES]
    named = (folder / name for folder, pattern, names in matches for name in filter(pattern.fullmatch, names))
    if first := next((file for file in named if file.is_file() and _form(file)), None):
        return [first]
    return list(list_below(path, _SUFFIXES, _form))


def _form(file: Path) -> tuple[re.Pattern[str], bool] | None:
    """The form of the lines of a file, and whether the first is a header; None if it is of no known form."""
    line = first_line(file)
    for header, form in _HEADERS:
        if header.fullmatch(line.strip().lower()) and not (form is _COMMA and file.suffix.lower() == ".csv"):
            return form, True  # a .csv of columns with commas is a table
    if _TOKEN.fullmatch(line):
        return _TOKEN, False
    matches = ((form, form.fullmatch(line)) for form in (_TAB, _COMMA))
    return next(((form, False) for form, match in matches if match and is_image_file(_last(match["name"]))), None)


def _last(name: str) -> str:
    return name.strip().replace("\\", "/").rpartition("/")[2]


def read_lines(file: Path) -> Iterator[tuple[int, tuple[str, str] | None]]:
    """The lines of a file below its header, with their numbers: name and caption, None for one of another form."""
    form, has_header = _form(file) or (_TOKEN, False)
    lines = list(enumerate(re.split(r"\r\n|\r|\n", read_text(file)), start=1))
    for number, line in [(number, line) for number, line in lines if line.strip()][has_header:]:
        match = form.fullmatch(line)
        caption = match["caption"].strip() if match else ""
        if form is _COMMA and len(caption) > 1 and caption[0] == caption[-1] == '"':
            caption = caption[1:-1].replace('""', '"')
        yield number, (match["name"].strip(), caption) if match else None


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    rows = CaptionRows(file, issues, _FORMS[(_form(file) or (_TOKEN,))[0]])
    nameless: dict[str, None] = {}
    for number, cells in read_lines(file):
        if cells is None:
            rows.unusable.append(number)
        elif not is_image_file(_last(cells[0])):
            nameless[cells[0]] = None  # Flickr8k.token.txt has 2258277193_586949ec62.jpg.1, which is no image
        else:
            rows.add(number, _COLUMNS, cells)
    issues.warning(nameless, "name|names", f"in {issues.display(file)} that no image can have, left out")
    root = root_of(file, _TEXT_FOLDERS)
    folders = [*(root / name for name in _IMAGE_FOLDERS), root, file.parent]
    return rows.records(folders, "the official lists beside the captions, such as Flickr_8k.trainImages.txt,")
