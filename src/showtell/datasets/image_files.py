"""Finding the images that a dataset names; each folder is listed once, however many images it holds."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from showtell.datasets.issues import DatasetIssues
from showtell.datasets.source_files import names_in
from showtell.images.photo_files import is_image_file


def root_of(file: Path, subfolders: Sequence[str] = ("annotations",)) -> Path:
    """The folder of the dataset that a file belongs to, which may lie in a subfolder of it."""
    return file.parent.parent if file.parent.name in subfolders else file.parent


class ImageFiles:
    """Finds images by the names that a dataset gives them, with slashes between folders.

    Args:
        folders: where the names may start from, the most likely first.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [str(folder) for folder in folders]
        self._listings: dict[str, frozenset[str]] = {}
        self._resolved: dict[str, list[tuple[str, frozenset[str]]]] = {}
        self._default_folder: str | None = None
        self._by_bare_name: dict[str, list[Path]] | None = None
        self._guessed: list[str] = []  # "name with path" of each image that was matched by its bare name
        self._outside: list[str] = []  # names that lead out of the folders

    def find(self, names: Iterable[str]) -> Path | None:
        """The path of the image with one of these names, or the path where it should be if there is none.

        A name that does not exist as written, folders included, is searched by its last part alone, in any case and
        with or without its suffix, in the folders and their direct subfolders. It matches if exactly one file fits.

        Returns:
            None if a name leads out of the folders: no dataset can make files elsewhere be opened.
        """
        tried = []
        for name in names:
            if _is_outside(name):
                self._outside.append(name)
                return None
            tried.append(name)
            folder, _, last = name.rpartition("/")
            for path, listing in self._resolve(folder):
                if last in listing:
                    return Path(path, last)
        for name in tried:
            matches = self._bare_names().get(_bare(name.rpartition("/")[2]), [])
            if len(matches) == 1:
                if matches[0].name != name:
                    self._guessed.append(f"{name} with {matches[0]}")
                return matches[0]
        if self._default_folder is None:
            self._default_folder = next(filter(self.listing, self._folders), self._folders[0])
        return Path(self._default_folder, tried[0])

    def report(self, issues: DatasetIssues, shown: str) -> None:
        """Report the images that lie elsewhere or were matched by their bare names; `shown` names the file."""
        issues.problem(
            self._outside,
            "{file} names {count} outside its folder: {items}; put them into the folder and name them from there.",
            "image file",
            file=shown,
        )
        issues.warning(
            self._guessed,
            "{count} not where {file} says and matched by the bare file name: {items}; check that they fit.",
            *("image is", "images are"),
            file=shown,
        )

    def listing(self, folder: str) -> frozenset[str]:
        """The names in a folder; none where there is no such folder."""
        if folder not in self._listings:
            self._listings[folder] = names_in(folder)
        return self._listings[folder]

    def _resolve(self, folder: str) -> list[tuple[str, frozenset[str]]]:
        """The existing folders that a folder in a name may mean, with their listings."""
        if folder not in self._resolved:
            paths = [os.path.join(start, folder) if folder else start for start in self._folders]  # noqa: PTH118
            self._resolved[folder] = [(path, self.listing(path)) for path in paths if self.listing(path)]
        return self._resolved[folder]

    def _bare_names(self) -> dict[str, list[Path]]:
        """Paths by file name, and by file name without suffix, from the folders and their direct subfolders."""
        if self._by_bare_name is None:
            self._by_bare_name = {}
            for folder in self._with_subfolders():
                for name in self.listing(folder):
                    if is_image_file(name):
                        for key in {_bare(name), _bare(Path(name).stem)}:
                            self._by_bare_name.setdefault(key, []).append(Path(folder, name))
        return self._by_bare_name

    def _with_subfolders(self) -> list[str]:
        folders: dict[str, None] = {}
        for folder in filter(self.listing, self._folders):
            with os.scandir(folder) as entries:
                below = [e.path for e in entries if e.is_dir() and not e.name.startswith(".")]
            folders.update(dict.fromkeys([folder, *sorted(below)]))
        return list(folders)


def _is_outside(name: str) -> bool:
    """Whether a name is absolute, on POSIX or Windows, or climbs out of the folder that it starts from."""
    if name.startswith("/") or name[1:2] == ":":
        return True
    return ".." in name and f"{posixpath.normpath(name)}/".startswith("../")


def _bare(name: str) -> str:
    """A file name for comparison, without regard to case and to the encoding of accents."""
    return unicodedata.normalize("NFC", name).casefold()
