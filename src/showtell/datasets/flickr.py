"""Flickr8k and Flickr30k: `Flickr8k.token.txt`, `results_20130124.token`, Kaggle's `captions.txt` and `results.csv`.

A line is one caption: `dog.jpg#0<TAB>A dog runs.`, or `dog.jpg,A dog runs.`, below the line `image,caption` or not, or
`dog.jpg| 0| A dog runs.` below the line `image_name| comment_number| comment`. The official lists
`Flickr_8k.trainImages.txt`, `Flickr_8k.devImages.txt` and `Flickr_8k.testImages.txt` beside them choose the splits.
"""

from __future__ import annotations

import re
from pathlib import Path

from showtell.datasets.entries import CaptionRows, Columns
from showtell.datasets.image_files import first_line, names_in, root_of
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.files import read_text
from showtell.images.photo_files import is_image_file

EXAMPLE = "Flickr8k.token.txt with the line dog.jpg#0<TAB>A dog runs. beside a folder images/ or Flicker8k_Dataset/"

_TOKEN = re.compile(r"(?P<name>[^\t]+)#\d+\t(?P<caption>.*)")
_COMMA = re.compile(r"(?P<name>[^,]+),(?P<caption>.*)")
_BAR = re.compile(r"(?P<name>[^|]+)\|\s*\d+\s*\|?(?P<caption>.*)")  # one line of Kaggle's file lacks the second bar
_FORMS = {_TOKEN: "dog.jpg#0<TAB>A dog runs", _COMMA: "dog.jpg,A dog runs", _BAR: "dog.jpg| 0| A dog runs"}
_HEADERS = ((re.compile(r"image\s*,\s*caption\s*"), _COMMA), (re.compile(r"image_name\s*\|.*\|\s*comment\s*"), _BAR))

# The files that a folder is searched for, the most likely first; lemmatised captions are read if nothing else is there.
_NAMES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (r"(?!.*lemma).*\.token(\.txt)?", r"captions\.txt", r"results\.csv", r".*lemma\.token(\.txt)?")
)
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
    """Read a file of captions; of a folder the plain captions rather than the lemmatised ones."""
    issues = DatasetIssues(path)
    return issues.dataset("flickr", issues.collect(_caption_files(path)[:1], _read_file))


def _caption_files(path: Path) -> list[Path]:
    """The files of captions, the most likely first."""
    if path.is_file():
        return [path] if path.suffix.lower() in (".txt", ".token", ".csv") and _form(path) else []
    listings = {path / name: sorted(names_in(str(path / name))) for name in _TEXT_FOLDERS}
    matches = [(folder, pattern, names) for folder, names in listings.items() for pattern in _NAMES]
    files = [folder / name for folder, pattern, names in matches for name in filter(pattern.fullmatch, names)]
    return [file for file in files if file.is_file() and _form(file)]


def _form(file: Path) -> tuple[re.Pattern[str], bool] | None:
    """The form of the lines of a file, and whether the first is a header; None if it is of no known form."""
    line = first_line(file)
    for header, form in _HEADERS:
        if header.fullmatch(line.strip().lower()):
            return form, True
    if _TOKEN.fullmatch(line):
        return _TOKEN, False
    without_header = _COMMA.fullmatch(line)
    return (_COMMA, False) if without_header and is_image_file(without_header["name"]) else None


def _read_file(file: Path, issues: DatasetIssues) -> list[CaptionRecord]:
    form, has_header = _form(file) or (_TOKEN, False)
    rows = CaptionRows(file, issues, _FORMS[form])
    nameless: dict[str, None] = {}
    lines = list(enumerate(re.split(r"\r\n|\r|\n", read_text(file)), start=1))
    for number, line in [(number, line) for number, line in lines if line.strip()][has_header:]:
        match = form.fullmatch(line)
        name = match["name"].strip() if match else ""
        if match is None:
            rows.unusable.append(number)
        elif not is_image_file(name.replace("\\", "/").rpartition("/")[2]):
            nameless[name] = None  # Flickr8k.token.txt has 2258277193_586949ec62.jpg.1, which is no image
        else:
            caption = match["caption"].strip()
            if form is _COMMA and len(caption) > 1 and caption[0] == caption[-1] == '"':
                caption = caption[1:-1].replace('""', '"')
            rows.add(number, _COLUMNS, [name, caption])
    issues.warning(nameless, "name|names", f"in {issues.display(file)} that no image can have, left out")
    root = root_of(file, _TEXT_FOLDERS)
    folders = [*(root / name for name in _IMAGE_FOLDERS), root, file.parent]
    records = rows.records(folders, "the official lists beside the captions, such as Flickr_8k.trainImages.txt,")
    issues.unused()
    return records
