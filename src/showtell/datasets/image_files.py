"""Files of datasets: listing them, telling what they are, and finding the images that a dataset names."""

from __future__ import annotations

import os
import posixpath
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path

from showtell.files import read_bytes
from showtell.images.photo_files import is_image_file, is_left_alone

MAX_FILES = 50  # a folder with more JSON files than this holds one per image, not datasets
_START = 65536  # bytes that are enough to tell what a file is


def list_files(path: Path, suffixes: tuple[str, ...], subfolders: Sequence[str] = ("",)) -> list[Path]:
    """The regular files with a suffix such as ".csv": the path itself, or those in its `subfolders` ("": itself)."""
    if not path.is_dir():
        return [path] if path.suffix.lower() in suffixes and path.is_file() else []
    files = [
        path / subfolder / name
        for subfolder in subfolders
        for name in sorted(names_in(str(path / subfolder)))
        if name.lower().endswith(suffixes) and not name.startswith(".")
    ]
    return [file for file in files if file.is_file()]


def subfolders(path: Path) -> list[Path]:
    """The folders directly in a folder, by name, without those that systems keep for themselves."""
    try:
        with os.scandir(path) as entries:
            return sorted(path / entry.name for entry in entries if entry.is_dir() and not is_left_alone(entry.name))
    except OSError:
        return []


def names_in(folder: str) -> frozenset[str]:
    """The names in a folder; none where there is no such folder."""
    try:
        return frozenset(os.listdir(folder or "."))  # noqa: PTH208 (names are enough)
    except (OSError, ValueError):  # ValueError: a null byte or a lone surrogate in the name
        return frozenset()


def as_text(name: str) -> str:
    r"""A file name as valid text: bytes that are not UTF-8, surrogates in Python, are escaped: dog\xff.jpg."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def read_start(file: Path) -> str:
    """The first 64 kB of a file as text, whatever they are: enough to tell what it is."""
    start = read_bytes(file, _START)
    encoding = "utf-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    return start.decode(encoding, errors="replace")


def first_line(file: Path, skipped: re.Pattern[str] | None = None) -> str:
    """The first line that is not empty, in the first 64 kB of a file, behind what `skipped` matches at its start."""
    start = read_start(file)
    match = skipped.match(start) if skipped else None
    return re.split(r"[\r\n]+", start[match.end() if match else 0 :].lstrip("\r\n"), maxsplit=1)[0]


def root_of(file: Path, subfolders: Sequence[str] = ("annotations",)) -> Path:
    """The folder of the dataset that a file belongs to: its own, or the one above if its own is such a subfolder."""
    return file.parent.parent if file.parent.name in subfolders else file.parent


class ImageFiles:
    """Finds images by names in a dataset, which start from some folders, the most likely first; each is listed once."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = list(dict.fromkeys(map(str, folders)))
        self._listing = cache(names_in)
        self.guessed: list[str] = []  # "name with path" of each image that was matched by its bare name
        self.outside: list[str] = []  # names that lead out of the folders

    def find(self, names: Sequence[str]) -> Path | None:
        """The image with one of these names, or where it should be; None if a name leads out of the folders.

        An absolute name counts from the folder that it lies in. One that does not exist as written is searched without
        its first folders, then by its last part alone, in any case, with or without its suffix, if one file fits.
        """
        names = [self._relative(name) for name in names]
        outside = next(filter(_is_outside, names), None)
        # a/b/dog.jpg as b/dog.jpg; dog.jpg alone is for the search by bare names, behind the loop
        shorter = [name[slash.end() :] for name in names for slash in [*re.finditer("/", name)][:-1] if outside is None]
        for is_shorter, name in [*((False, name) for name in names), *((True, name) for name in shorter)]:
            if _is_outside(name):
                continue
            below, _, last = name.rpartition("/")
            for start in self._folders:
                folder = f"{start}/{below}" if below else start
                if last in self._listing(folder):
                    self.guessed += [f"{names[0]} with {folder}/{last}"] if is_shorter else []
                    return Path(folder, last)
        if outside is not None:
            self.outside.append(outside)
            return None
        for name in names:
            matches = self._by_bare_name.get(_bare(name.rpartition("/")[2]), [])
            if len(matches) == 1:
                if matches[0].name != name:
                    self.guessed.append(f"{name} with {matches[0]}")
                return matches[0]
        where_it_should_be = next(filter(self._listing, self._folders), self._folders[0])  # the first that is not empty
        return Path(where_it_should_be, names[0])

    def _relative(self, name: str) -> str:
        """An absolute name in one of the folders as it starts from there; any other as it is."""
        above = (os.path.join(os.path.abspath(folder), "") for folder in self._folders)  # noqa: PTH100, PTH118
        inside = (name.removeprefix(folder) for folder in above if name.startswith(folder))
        return next(inside, name) if name.startswith("/") else name

    @cached_property
    def _by_bare_name(self) -> dict[str, list[Path]]:
        """Paths by file name, with and without its suffix, in the folders and their direct subfolders."""
        starts = [Path(folder) for folder in self._folders if self._listing(folder)]
        paths: dict[str, list[Path]] = {}
        for folder in {*starts, *(below for start in starts for below in subfolders(start))}:
            for name in filter(is_image_file, self._listing(str(folder))):
                for key in {_bare(name), _bare(Path(name).stem)}:
                    paths.setdefault(key, []).append(folder / name)
        return paths


def _is_outside(name: str) -> bool:
    """Whether a name is absolute, on POSIX or Windows, or climbs out of the folder that it starts from."""
    is_absolute = name.startswith("/") or name[1:2] == ":"
    return is_absolute or (".." in name and f"{posixpath.normpath(name)}/".startswith("../"))


def _bare(name: str) -> str:
    """A file name for comparison, without regard to case and to the encoding of accents."""
    return unicodedata.normalize("NFC", name).casefold()
