"""Photos on disk: the files that the arguments of a command name, searching folders, patterns and standard input."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from showtell.errors import ImageError

# What a folder is searched for. A file that is named outright is opened whatever its suffix.
IMAGE_SUFFIXES = frozenset(
    (
        *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
        *(".mpo", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"),
    )
)


def find_photos(arguments: Sequence[str], stdin: BinaryIO | None = None) -> list[Path]:
    """The photos that arguments name, each once, in the order of the arguments.

    An argument is a file, taken as it is; a folder, searched with its subfolders; a pattern with `*`, `?`,
    `[...]` or `**`, such as reaches us where a shell was told not to expand it; or `-`, which stands for the files
    and folders that standard input names. Of folders and patterns come the files with an image suffix, hidden ones
    left out, photo2 before photo10; links to folders are not followed. A file that does not exist and a folder that
    cannot be searched are handed on, so that a batch can skip them: `open_photo` says what is wrong.

    Args:
        arguments: of a command.
        stdin: where `-` reads paths from, one on each line, or parted by null bytes (`find -print0`).

    Raises:
        ImageError: a folder or a pattern without any image, or standard input without any path.
    """
    photos: dict[str, Path] = {}
    for argument in arguments:
        path = Path(os.path.expanduser(argument))  # noqa: PTH111 (that of Path fails where nobody has a home)
        if argument == "-" and stdin is not None:
            named = list(_photos_named(stdin.read()))
            if not named:
                raise ImageError("Standard input names no photo; it should hold a path on each line.")
        elif os.path.isdir(path):  # noqa: PTH112 (a name that is too long is no folder, where that of Path fails)
            named = _photos_in(path)
        elif glob.has_magic(argument) and not os.path.exists(path):  # noqa: PTH110
            named = sorted(_photos_matching(str(path)), key=natural_order)
            if not named:
                raise ImageError(f"No image ({_suffixes()}) matches {argument}.")
        else:
            named = [path]
        for photo in named:
            photos.setdefault(os.path.abspath(photo), photo)  # noqa: PTH100 (resolve() would follow links)
    return list(photos.values())


def _photos_named(content: bytes) -> Iterator[Path]:
    """The photos of a list of paths: files as they are, and what folders hold."""
    names = content.split(b"\0") if b"\0" in content else content.splitlines()
    for name in filter(None, names):
        path = Path(os.fsdecode(name))
        yield from _photos_in(path) if os.path.isdir(path) else [path]  # noqa: PTH112


def _photos_in(folder: Path) -> list[Path]:
    """The photos of a folder and its subfolders.

    Raises:
        ImageError: there are none.
    """
    photos = sorted(_photos_below(folder), key=natural_order)
    if not photos:
        raise ImageError(f"The folder {folder} holds no image ({_suffixes()}).")
    return photos


def _photos_below(folder: Path) -> Iterator[Path]:
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in files if is_image_file(name))
    yield from unreadable


def _photos_matching(pattern: str) -> Iterator[Path]:
    for name in glob.iglob(pattern, recursive=True):  # noqa: PTH207 (the pattern may be absolute)
        path = Path(name)
        if os.path.isdir(path):  # noqa: PTH112
            yield from _photos_below(path)
        elif is_image_file(path.name):
            yield path


def photo_names(photo: Path) -> dict[str, str]:
    """The names under which an image may be listed whose photo this is, by their kind, the most specific first.

    >>> list(photo_names(Path("/photos/000012.jpg")).values())
    ['/photos/000012.jpg', '/photos/000012.jpg', '000012.jpg', '000012', '12']
    """
    number = re.search(r"[0-9]+$", photo.stem)
    return {
        "full path": os.path.abspath(photo),  # noqa: PTH100 (resolve() would follow links)
        "path": str(photo),
        "file name": photo.name,
        "file name without suffix": photo.stem,
        **({"number at the end of the file name": str(int(number.group()))} if number else {}),
    }


def images_by_name(images: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Image id by each name that means one image alone: the names of each, and those without folders."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for image, names in images.items():
        for name in names:
            by_name[name].add(image)
            by_name[os.path.abspath(name)].add(image)  # noqa: PTH100
            by_name[Path(name).name].add(image)
    return {name: next(iter(meant)) for name, meant in by_name.items() if len(meant) == 1}


def match_photos(photos: Iterable[Path], images: Mapping[str, str]) -> tuple[dict[Path, str], str | None]:
    """The image of each photo that has one, by the one kind of `photo_names` by which most of them have.

    Args:
        photos: files, which need not be there.
        images: image id by name, from `images_by_name`.

    Returns:
        {photo: image id}, and the kind, of equal ones the most specific; None where no photo has an image.
    """
    names = {photo: photo_names(photo) for photo in photos}
    kinds = Counter(kind for of_photo in names.values() for kind, name in of_photo.items() if name in images)
    if not kinds:
        return {}, None
    kind = max(photo_names(Path("0")), key=lambda kind: kinds[kind])
    return {photo: images[own[kind]] for photo, own in names.items() if own.get(kind) in images}, kind


def is_image_file(name: str) -> bool:
    """Whether a file of this name is taken for a photo when a folder is searched."""
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def _suffixes() -> str:
    return ", ".join(sorted(IMAGE_SUFFIXES))


def natural_order(path: Path) -> tuple[list[list[tuple[int, str]]], str]:
    """Sort key by which photo2 comes before photo10, and a folder's files stay together."""
    return [_pieces(part) for part in path.parts], str(path)


def _pieces(name: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"([0-9]+)", name.casefold())]
