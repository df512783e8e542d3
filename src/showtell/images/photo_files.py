"""Photos on disk: the files that the arguments of a command name, searching folders, patterns and standard input."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from showtell.errors import ImageError

# What a folder is searched for. A file that is named outright is opened whatever its suffix.
IMAGE_SUFFIXES = frozenset([
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff",
    ".webp",
])  # fmt: skip
# Folders of systems beside people's photos, in lower case: thumbnails, what was deleted, halves of a Mac's files.
SYSTEM_FOLDERS = frozenset([
    "#recycle", "#snapshot", "$recycle.bin", "@appdata", "@database", "@eadir", "@recently-snapshot", "@recycle",
    "@sharebin", "@sharesnap", "@tmp", "__macosx", "found.000", "lost+found", "network trash folder", "recycled",
    "recycler", "system volume information", "temporary items", "thumbnails.noindex", "~snapshot",
])  # fmt: skip
SidecarName = Literal["dog.jpg.xmp", "dog.xmp"]  # how the XMP sidecar of dog.jpg is called


def is_image_file(name: str) -> bool:
    """Whether a file of this name is taken for a photo when a folder is searched."""
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def find_photos(arguments: Sequence[str], stdin: BinaryIO | None = None) -> list[Path]:
    """The photos that arguments name, each once and in order; an ImageError for a folder or pattern without any.

    An argument is a file, taken as it is; a folder, searched with its subfolders but not links to them; a pattern; or
    `-`, what `stdin` names, separated by line breaks or null bytes (`find -print0`). Missing files and folders that
    cannot be searched are returned too, so that a batch can skip them: `open_photo` raises their error.
    """
    photos: dict[str, Path] = {}
    for argument in arguments:
        if argument == "-" and stdin is not None:
            content = stdin.read()
            names = content.split(b"\0") if b"\0" in content else content.splitlines()
            named = [photo for name in filter(None, names) for photo in _photos_at(os.fsdecode(name))]
            if not named:
                raise ImageError("Standard input names no photo; it should hold a path on each line.")
        else:
            argument = os.path.expanduser(argument)  # noqa: PTH111 (that of Path fails where nobody has a home)
            named = _photos_at(argument, is_pattern=glob.has_magic(argument))
        for photo in named:
            photos.setdefault(os.path.abspath(photo), photo)  # noqa: PTH100 (resolve() would follow links)
    return list(photos.values())


def _photos_at(name: str, *, is_pattern: bool = False) -> list[Path]:
    """The photos of a folder and its subfolders, or that match a pattern, at least one; else the file as it is."""
    if os.path.isdir(name):  # noqa: PTH112 (a name that is too long is no folder, where that of Path fails)
        photos, subject = files_below(Path(name)), f"The folder {Path(name)} holds"
    elif is_pattern and not os.path.exists(name):  # noqa: PTH110
        matches = map(Path, glob.iglob(name, recursive=True))  # noqa: PTH207 (the pattern may be absolute)
        own = (path for path in matches if not any(map(is_left_alone, {*path.parts} - {*Path(name).parts})))
        photos = (photo for path in own for photo in (files_below(path) if path.is_dir() else [path]))
        photos, subject = filter(lambda photo: is_image_file(photo.name), photos), f"The pattern {name} matches"
    else:
        return [Path(name)]
    if not (listed := sorted(photos, key=natural_order)):
        raise ImageError(f"{subject} no image ({', '.join(sorted(IMAGE_SUFFIXES))}).")
    return listed


def files_below(folder: Path, is_wanted: Callable[[str], bool] = is_image_file) -> Iterator[Path]:
    """The wanted files of a folder and its subfolders, in no order, and the folders that cannot be searched."""
    unreadable: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        folders[:] = [name for name in folders if not is_left_alone(name)]
        yield from (Path(parent, name) for name in files if is_wanted(name))
    yield from unreadable


def has_sidecars(folder: Path) -> bool:
    """Whether a folder or its subfolders hold any XMP sidecar."""
    files = files_below(folder, lambda name: name.lower().endswith(".xmp"))
    return any(file.suffix.lower() == ".xmp" for file in files)  # the folders that cannot be searched have none


def is_left_alone(name: str) -> bool:
    """Whether a subfolder of this name is hidden or of a system, so that nothing in it is read or written."""
    return name.startswith(".") or name.casefold() in SYSTEM_FOLDERS


def photo_names(photo: Path) -> dict[str, str]:
    """The names under which an image may be listed whose photo this is, by their kind, the most specific first."""
    return {kind: name for kind, name_of in _NAMES.items() if (name := name_of(photo))}


def _number_of(photo: Path) -> str:
    number = re.search(r"[0-9]{1,50}$", photo.stem)
    return str(int(number.group())) if number else ""


_NAMES: dict[str, Callable[[Path], str]] = {
    "full path": os.path.abspath,  # resolve() would follow links
    "path": str,
    "folder and file name": lambda photo: f"{photo.parent.name}/{photo.name}",
    "file name": lambda photo: photo.name,
    "file name without suffix": lambda photo: photo.stem,
    "number at the end of the file name": _number_of,
}
_SAMPLE_SIZE = 10_000  # photos, spread over all, that tell the kind of their names


def images_by_name(images: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Image id by each name of one image alone; full names go before those without a suffix and COCO's numbers."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    by_stem: defaultdict[str, set[str]] = defaultdict(set)
    for image, names in images.items():
        for name in names:
            path = Path(name)
            for alias in (name, os.path.abspath(name), f"{path.parent.name}/{path.name}", path.name):  # noqa: PTH100
                by_name[alias].add(image)
            if is_image_file(path.name):
                number = coco_number(path.stem)
                for alias in (str(path.with_suffix("")), path.stem, *([number] if number else [])):
                    by_stem[alias].add(image)
    return {name: next(iter(meant)) for name, meant in {**by_stem, **by_name}.items() if len(meant) == 1}


def coco_number(stem: str) -> str | None:
    """The id of an image of COCO by its photo's name without suffix: 42 of "COCO_val2014_000000000042"; else None."""
    match = re.fullmatch(r"(?:COCO_\w+_)?([0-9]{12})", stem)
    return str(int(match[1])) if match else None


def match_photos(photos: Iterable[Path], images: Mapping[str, str]) -> tuple[dict[Path, str], str | None]:
    """The images of photos by the kind of name by which most have one, and that kind; see `images_by_name`."""
    photos = list(photos)
    some = photos[:: len(photos) // _SAMPLE_SIZE + 1]
    kinds = Counter(kind for photo in some for kind, name in photo_names(photo).items() if name in images)
    if not kinds:
        return {}, None
    kind = max(_NAMES, key=lambda kind: kinds[kind])
    names = ((photo, _NAMES[kind](photo)) for photo in photos)
    return {photo: images[name] for photo, name in names if name in images}, kind


def natural_order(path: Path) -> tuple[list[list[tuple[int, str]]], str]:
    """Sort key by which photo2 comes before photo10, and a folder's files stay together."""
    parts = [re.split(r"([0-9]+)", part.casefold()) for part in path.parts]
    return [[(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in part] for part in parts], str(path)
