"""Where the images are that a dataset names, with each folder listed once however many images it holds."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from showtell.datasets.findings import Findings, counted
from showtell.errors import summarise
from showtell.images.photo import is_photo_name


class ImageFiles:
    """Finds images by the names that a dataset gives them.

    Args:
        folders: where the names may start from, the likeliest first.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [str(folder) for folder in folders]
        self._listings: dict[str, frozenset[str]] = {}
        self._by_bare_name: dict[str, list[Path]] | None = None
        self.guessed: list[str] = []  # "name with path" of each image whose name had to be bent to match

    def find(self, names: Iterable[str]) -> Path:
        """The image that goes by one of these names, or where it should be if there is none.

        A name that is nowhere as written, folders included, is looked for by its last part alone, in any
        case and with or without its suffix, in the folders and the folders right below them. It counts as
        found when exactly one file fits.
        """
        tried = []
        for name in names:
            tried.append(name)
            for folder in self._folders:
                parent, last = os.path.split(os.path.join(folder, name))  # noqa: PTH118 (Path is slow here)
                if last in self.listing(parent):
                    return Path(parent, last)
        for name in tried:
            matches = self._bare_names().get(_bare(name.rpartition("/")[2]), [])
            if len(matches) == 1:
                if matches[0].name != name:
                    self.guessed.append(f"{name} with {matches[0]}")
                return matches[0]
        likely = next((folder for folder in self._folders if self.listing(folder)), self._folders[0])
        return Path(likely, tried[0])

    def report_guesses(self, findings: Findings, shown: str) -> None:
        """Warn of the images whose names had to be bent to match, in the file that is shown as this."""
        if self.guessed:
            findings.warnings.append(
                f"{counted(len(self.guessed), 'image is', 'images are')} not where {shown} says and matched by "
                f"the bare file name: {summarise(self.guessed, 2)}; check that they belong together."
            )

    def listing(self, folder: str) -> frozenset[str]:
        """The names in a folder; none where there is no such folder."""
        if folder not in self._listings:
            try:
                self._listings[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 (names are enough)
            except (OSError, ValueError):  # ValueError: no path has a null byte in it
                self._listings[folder] = frozenset()
        return self._listings[folder]

    def _bare_names(self) -> dict[str, list[Path]]:
        """Paths by file name, and by file name without suffix, from the folders and those right below."""
        if self._by_bare_name is None:
            self._by_bare_name = {}
            for folder in self._with_subfolders():
                for name in self.listing(folder):
                    if is_photo_name(name):
                        for key in {_bare(name), _bare(Path(name).stem)}:
                            self._by_bare_name.setdefault(key, []).append(Path(folder, name))
        return self._by_bare_name

    def _with_subfolders(self) -> list[str]:
        found: dict[str, None] = {}
        for folder in filter(self.listing, self._folders):
            with os.scandir(folder) as entries:
                below = [e.path for e in entries if e.is_dir() and not e.name.startswith(".")]
            found.update(dict.fromkeys([folder, *sorted(below)]))
        return list(found)


def _bare(name: str) -> str:
    """A file name as people compare them: case and the encoding of accents do not count."""
    return unicodedata.normalize("NFC", name).casefold()
