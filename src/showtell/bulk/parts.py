"""A part: some of the photos of a large input, small enough to be done again, and how its photos are read.

A part is a list of files, a tar of a WebDataset or a row group of a parquet file. Its photos always come in the same
order under the same names, on any machine that reaches the files.
"""

from __future__ import annotations

import dataclasses
import os
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from showtell.errors import ImageError
from showtell.images.photo import MAX_FILE_BYTES
from showtell.images.photo_files import is_image_file
from showtell.images.prefetch import prefetch

Source = Path | bytes | ImageError  # a file, its bytes, or why there are none
FETCHERS = 8  # threads that wait for an object store


@dataclass(frozen=True)
class FileList:
    """Files by name."""

    names: tuple[str, ...]  # paths, or URLs that fsspec opens

    @property
    def photos(self) -> int | None:
        """How many."""
        return len(self.names)


@dataclass(frozen=True)
class TarShard:
    """The members of a tar that are images by their names; it may be compressed."""

    url: str

    @property
    def photos(self) -> int | None:
        """How many: nobody knows before it is read."""
        return None


@dataclass(frozen=True)
class ParquetRowGroup:
    """One row group of a parquet file."""

    url: str
    group: int
    first_row: int  # of the file's rows, counted from 0
    rows: int
    column: str  # bytes, paths, or a struct {bytes, path} as Hugging Face writes it

    @property
    def photos(self) -> int | None:
        """How many."""
        return self.rows


Part = FileList | TarShard | ParquetRowGroup  # some photos of a large input, small enough to be done again
_KINDS: dict[str, Callable[..., Part]] = {"files": FileList, "tar": TarShard, "row_group": ParquetRowGroup}


def part_to_json(part: Part) -> dict[str, Any]:
    """A part as a plan keeps it."""
    kind = next(name for name, kind in _KINDS.items() if kind is type(part))
    return {"kind": kind, **dataclasses.asdict(part)}


def part_from_json(content: dict[str, Any]) -> Part:
    """The part that `part_to_json` wrote.

    Raises:
        ValueError: it wrote no such thing.
    """
    try:
        fields = {name: tuple(value) if name == "names" else value for name, value in content.items() if name != "kind"}
        part = _KINDS[content["kind"]](**fields)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"no part: {error}") from error
    texts = part.names if isinstance(part, FileList) else (part.url, getattr(part, "column", ""))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"no names of a part: {texts}")
    return part


def is_url(name: str) -> bool:
    """Whether fsspec opens it, as opposed to a path on this machine."""
    return "://" in name


def open_binary(name: str) -> BinaryIO:
    """Open a path or a URL for reading, with seeking."""
    if not is_url(name):
        if Path(name).exists() and not Path(name).is_file():  # to open a pipe would wait for ever
            raise OSError(f"{name} is no file")
        return Path(name).open("rb")
    import fsspec

    files, path = fsspec.core.url_to_fs(name)
    return cast(BinaryIO, files.open(path, "rb"))


def read_part(part: Part, batch_size: int) -> Iterator[tuple[str, Source]]:
    """The photos of a part, each with its name, read from afar a batch ahead of who works on them.

    Photos that cannot be fetched come as an `ImageError` that says why, and so does a tar or a parquet file from the
    point on where it cannot be read.
    """
    if isinstance(part, FileList):
        named: Iterator[tuple[str, str | Source]] = ((name, name) for name in part.names)
    elif isinstance(part, TarShard):
        named = _members(part)
    else:
        named = _rows(part)
    return chain.from_iterable(prefetch(_fetched(named, batch_size), ahead=1))


def _fetched(named: Iterator[tuple[str, str | Source]], size: int) -> Iterator[list[tuple[str, Source]]]:
    """Sources in place of names of files, in chunks: a path stays one, since the captioner's own threads read it."""
    with ThreadPoolExecutor(max_workers=FETCHERS) as pool:
        while chunk := list(islice(named, size)):
            yield list(pool.map(lambda one: (one[0], _fetch(one[1]) if isinstance(one[1], str) else one[1]), chunk))


def _fetch(name: str) -> Source:
    if not is_url(name):
        return Path(name)
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(name)
        return cast(bytes, files.cat_file(path))
    except FileNotFoundError:
        return ImageError(f"There is no file {name}.")
    except Exception as error:  # noqa: BLE001  (each object store has errors of its own)
        return ImageError(f"Cannot read {name}: {reason(error)}.")


def _members(part: TarShard) -> Iterator[tuple[str, str | Source]]:
    count = 0
    try:
        with open_binary(part.url) as stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
            for member in archive:
                if not member.isfile() or not is_image_file(PurePosixPath(member.name).name):
                    continue
                content = _content(archive, member)
                count += 1
                yield f"{part.url}/{member.name}", content
    except Exception as error:  # noqa: BLE001  (of tarfile, of what it is compressed with, and of object stores)
        yield part.url, ImageError(f"{part.url} cannot be read after {count} photos: {reason(error)}.")
        return
    if not count:
        yield part.url, ImageError(f"{part.url} holds no image.")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Source:
    if member.size > MAX_FILE_BYTES:
        return ImageError(
            f"{member.name} has {member.size / 2**20:,.0f} MB, more than a photo may have "
            f"({MAX_FILE_BYTES // 2**20} MB); save it smaller."
        )
    stream = archive.extractfile(member)
    assert stream is not None  # it is None for what is no file
    return stream.read()


def _rows(part: ParquetRowGroup) -> Iterator[tuple[str, str | Source]]:
    import pyarrow.parquet

    row = part.first_row
    try:
        with open_binary(part.url) as stream, pyarrow.parquet.ParquetFile(stream) as table:
            for rows in table.iter_batches(batch_size=64, row_groups=[part.group], columns=[part.column]):
                for value in rows.column(0):
                    yield _row(part, row, value.as_py())
                    row += 1
    except Exception as error:  # noqa: BLE001  (of pyarrow and of object stores)
        yield part.url, ImageError(f"{part.url} cannot be read from row {row} on: {reason(error)}.")


def _row(part: ParquetRowGroup, row: int, value: Any) -> tuple[str, str | Source]:
    name = f"{part.url}#{row}"
    if isinstance(value, dict):  # a struct
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return name, value
    if not value:
        return name, ImageError(f"{name} has no photo in the column {part.column}.")
    path = value if is_url(value) or os.path.isabs(value) else f"{os.path.dirname(part.url) or '.'}/{value}"  # noqa: PTH117, PTH120
    return path, path


def reason(error: Exception) -> str:
    """What an error says, as the end of a sentence."""
    message = " ".join((getattr(error, "strerror", None) or str(error)).split())
    return message.rstrip(".") or type(error).__name__
