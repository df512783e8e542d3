"""Small datasets that tests write, with real images."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from showtell.datasets import read_dataset

Row = TypeVar("Row")


def write_photo(path: Path, shade: int | None = None) -> None:
    """A photo of 4 x 4 pixels. Without a shade it is one that no other name gets."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (shade, shade, shade) if shade is not None else tuple(path.name.encode()[-7:-4].rjust(3))
    Image.new("RGB", (4, 4), colour).save(path, format="PNG")


def listed(*numbers: int, name: str = "{:03}.png") -> list[dict[str, Any]]:
    """Entries of "images" for these ids."""
    return [{"id": number, "file_name": name.format(number)} for number in numbers]


def captioned(*numbers: int, first: int = 1) -> list[dict[str, Any]]:
    """Entries of "annotations": a caption for each of these image ids."""
    return [
        {"id": first + index, "image_id": number, "caption": f"Caption {first + index} of {number}."}
        for index, number in enumerate(numbers)
    ]


def write_coco(
    file: Path, images: Sequence[Any], annotations: Sequence[Any], photos: str | None = "images", **more: Any
) -> None:
    """A COCO file, and photos for the images it lists in a folder beside annotations/ (none for None)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"images": list(images), "annotations": list(annotations), **more}))
    if photos is not None:
        for entry in images:
            write_photo(file.parent.parent / photos / entry["file_name"])


def in_folders(tmp_path: Path, rows: Iterable[Row]) -> Iterator[tuple[Path, Row]]:
    """Each row of a table of cases with a new folder for it."""
    for number, row in enumerate(rows):
        folder = tmp_path / str(number)
        folder.mkdir()
        yield folder, row


def write_files(folder: Path, files: Mapping[str, str | bytes], photos: str = "") -> None:
    """Files by their names, with photos of the names given (parted by spaces)."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for photo in photos.split():
        write_photo(folder / photo)


def write_table(folder: Path, text: str, photos: str = "", name: str = "captions.csv") -> Path:
    """A table of captions, with photos of the names given (parted by spaces)."""
    write_files(folder, {name: text}, photos)
    return folder / name


def sentences(path: Path) -> tuple[list[str], list[str]]:
    """Problems and warnings of a dataset, with … for the folder in which the test works."""
    dataset = read_dataset(path)
    both = (dataset.problems, dataset.warnings)
    problems, warnings = ([text.replace(str(path), "…") for text in own] for own in both)
    return problems, warnings
