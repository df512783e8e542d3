"""A part: some of the photos of a large input, small enough to be done again, and how its photos are read.

A part is a list of files, or one shard: a tar of a WebDataset or a parquet file. Its photos always come in the same
order under the same names, on any machine that reaches the files. A path with "://" is opened by fsspec.
"""

from __future__ import annotations

import glob
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from showtell.errors import DataError, ImageError, UsageError
from showtell.images.photo import MAX_FILE_BYTES
from showtell.images.photo_files import find_photos, is_image_file

Part = tuple[str, ...]  # names of files, or of one shard
Source = str | bytes | ImageError  # a file by name, its bytes, or why there are none

TARS, TABLES = (".tar", ".tar.gz", ".tgz"), (".parquet",)
SHARDS = TARS + TABLES
# Where a photo is in tables that people publish; the first of these columns that is there.
COLUMNS = ("image", "jpg", "jpeg", "png", "webp", "img", "bytes", "content", "path", "file_name", "image_path", "url")
MAX_PHOTOS = 1024  # of a list of files: what is done again after a kill, at most, for each worker
MIN_PARTS = 16  # where there are as many batches, so that several workers end together


# --- planning ---


def plan_parts(arguments: Sequence[str], batch_size: int, stdin: BinaryIO | None = None) -> list[Part]:
    """The photos that arguments name, in parts and in the order of the arguments, each file once.

    An argument is whatever `find_photos` takes; a tar of a WebDataset or a parquet file; a pattern of those; or a URL
    of a file, a folder or a pattern that fsspec knows (s3://, gs://, hf://, https://, memory://, ...).

    Args:
        arguments: of a command.
        batch_size: photos that are encoded together; files are parted into whole batches.
        stdin: where `-` reads paths from.

    Raises:
        ImageError: a folder or a pattern without any image.
        DataError: a file that is not there, or a URL that cannot be read or holds no image.
    """
    names: dict[str, str] = {}  # a file that is named twice is captioned once
    for argument in arguments:
        for name in _expanded(argument, stdin):
            names.setdefault(name if _is_url(name) else os.path.abspath(name), name)  # noqa: PTH100
    files = [name for name in names.values() if not name.endswith(SHARDS)]
    batches = -(-len(files) // batch_size)
    size = batch_size * max(1, min(MAX_PHOTOS // batch_size, batches // MIN_PARTS))
    parts = [tuple(files[start : start + size]) for start in range(0, len(files), size)]
    return parts + [(name,) for name in names.values() if name.endswith(SHARDS)]


def _expanded(argument: str, stdin: BinaryIO | None) -> list[str]:
    """The names of files and shards that an argument stands for."""
    if _is_url(argument):
        return _names_at(argument)
    if not argument.endswith(SHARDS):
        return [str(photo) for photo in find_photos([argument], stdin)]
    path = os.path.expanduser(argument)  # noqa: PTH111
    shards = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True))  # noqa: PTH113, PTH207
    if not shards:
        raise DataError(f"No file matches {argument}.")
    return shards


def _names_at(url: str) -> list[str]:
    """The URLs of files and shards that a URL stands for."""
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(url)
        if glob.has_magic(path):
            names = [name for name in files.glob(path) if is_image_file(_last(name)) or name.endswith(SHARDS)]
        elif not is_image_file(_last(path)) and not path.endswith(SHARDS) and files.isdir(path):
            names = [name for name in files.find(path) if is_image_file(_last(name))]
        else:
            return [url]
    except Exception as error:  # each object store has errors of its own
        raise DataError(f"Cannot list {url}: {_reason(error)}.") from error
    if not names:
        raise DataError(f"{url} holds no image; name shards by a pattern, such as {url.rstrip('/')}/*.tar.")
    return [files.unstrip_protocol(name) for name in sorted(names)]


# --- reading ---


def read_part(part: Part, column: str | None = None) -> Iterator[tuple[str, Source]]:
    """The photos of a part, each with its name, files not opened yet.

    A shard ends with an `ImageError` from the point on where it cannot be read.

    Args:
        part: from `plan_parts`.
        column: of parquet files, where the photos are; None: one of `COLUMNS`.
    """
    if not part[0].endswith(SHARDS):
        yield from zip(part, part, strict=True)
        return
    (shard,) = part
    count = 0
    try:
        for name, source in _rows(shard, column) if shard.endswith(TABLES) else _members(shard):
            count += 1
            yield name, source
    except Exception as error:  # noqa: BLE001  (of tarfile, pyarrow, compression and object stores)
        yield shard, ImageError(f"{shard} cannot be read after {count} photos: {_reason(error)}.")
        return
    if not count:
        yield shard, ImageError(f"{shard} holds no image.")


def fetch(source: tuple[str, Source]) -> Path | bytes:
    """A photo of a part as a captioner takes it; reader threads call this.

    Raises:
        ImageError: there is none, or an object store does not give it.
    """
    photo = source[1]
    if isinstance(photo, ImageError):
        raise photo
    if isinstance(photo, bytes) or not _is_url(photo):
        return photo if isinstance(photo, bytes) else Path(photo)
    try:
        with _open(photo) as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except Exception as error:  # each object store has errors of its own
        raise ImageError(f"Cannot read {photo}: {_reason(error)}.") from error


def _members(shard: str) -> Iterator[tuple[str, Source]]:
    with _open(shard) as stream, tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            if member.isfile() and is_image_file(PurePosixPath(member.name).name):
                content = archive.extractfile(member)
                assert content is not None  # it is None for what is no file
                yield f"{shard}/{member.name}", content.read(MAX_FILE_BYTES + 1)


def _rows(shard: str, column: str | None) -> Iterator[tuple[str, Source]]:
    import pyarrow.parquet

    with _open(shard) as stream, pyarrow.parquet.ParquetFile(stream) as table:
        names = table.schema_arrow.names
        chosen = column or next((name for name in COLUMNS if name in names), None)
        if chosen not in names:
            raise UsageError(f"it has no column {chosen or 'of photos'} but {', '.join(names)}; name one with --column")
        values = (value for rows in table.iter_batches(64, columns=[chosen]) for value in rows.column(0))
        for row, value in enumerate(values):
            yield _cell(value.as_py(), shard, f"{shard}#{row}")


def _cell(value: Any, shard: str, name: str) -> tuple[str, Source]:
    """Bytes, a path from the shard's folder, or {"bytes", "path"} as Hugging Face writes it."""
    if isinstance(value, dict):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return name, value
    if not isinstance(value, str) or not value:
        return name, ImageError(f"{name} holds no photo and no path of one.")
    path = value if _is_url(value) or os.path.isabs(value) else f"{os.path.dirname(shard) or '.'}/{value}"  # noqa: PTH117, PTH120
    return path, path


def _open(name: str) -> BinaryIO:
    import fsspec

    return cast(BinaryIO, fsspec.open(name, "rb").open())


def _is_url(name: str) -> bool:
    return "://" in name


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _reason(error: Exception) -> str:
    """What an error says, as the end of a sentence."""
    message = " ".join((getattr(error, "strerror", None) or str(error)).split())
    return message.rstrip(".") or type(error).__name__
