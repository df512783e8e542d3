"""Arguments of a command to parts: files, folders, patterns, tars, parquet files, here or in an object store."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from showtell.bulk.parts import FileList, ParquetRowGroup, Part, TarShard, is_url, open_binary, reason
from showtell.errors import DataError, MissingDependencyError, UsageError, summarise
from showtell.images.photo_files import find_photos, is_image_file

TARS, TABLES = (".tar", ".tar.gz", ".tgz"), (".parquet",)
SHARDS = TARS + TABLES
# Where a photo is in tables that people publish; the first of these columns that is there.
COLUMNS = ("image", "jpg", "jpeg", "png", "webp", "img", "bytes", "content", "path", "file_name", "image_path", "url")
MAX_PHOTOS = 1024  # of a list of files: what is done again after a kill, at most, for each worker
MIN_PARTS = 16  # where there are as many batches, so that several workers end together
READERS = 16  # threads that wait for the ends of parquet files


def plan_parts(
    arguments: Sequence[str], batch_size: int, *, column: str | None = None, stdin: BinaryIO | None = None
) -> list[Part]:
    """The photos that arguments name, in parts and in the order of the arguments.

    An argument is whatever `find_photos` takes; a tar of a WebDataset or a parquet file; a pattern of those; or a URL
    of a file, a folder or a pattern that fsspec knows (s3://, gs://, hf://, https://, file://, memory://, ...). A part
    is a tar, a row group, or some files.

    Args:
        arguments: of a command.
        batch_size: photos that are encoded together; files are parted into whole batches.
        column: of parquet files, where the photos are; None: one of `COLUMNS`.
        stdin: where `-` reads paths from.

    Raises:
        ImageError: a folder or a pattern without any image.
        DataError: an object store or a parquet file that cannot be read.
        UsageError: a URL of a kind that nobody knows, or a parquet file without such a column.
        MissingDependencyError: a URL that needs a package.
    """
    names: dict[str, str] = {}  # a file that is named twice is captioned once
    for argument in arguments:
        for name in _expanded(argument, stdin):
            names.setdefault(name if is_url(name) else os.path.abspath(name), name)  # noqa: PTH100
    files = sum(not name.endswith(SHARDS) for name in names.values())
    batches = -(-files // batch_size)
    size = batch_size * max(1, min(MAX_PHOTOS // batch_size, batches // MIN_PARTS))
    tables = [name for name in names.values() if name.endswith(TABLES)]
    with ThreadPoolExecutor(max_workers=READERS) as pool:
        groups = dict(zip(tables, pool.map(lambda table: _row_groups(table, column), tables), strict=True))
    return list(_parted(names.values(), size, groups))


def _parted(names: Iterable[str], size: int, groups: dict[str, list[ParquetRowGroup]]) -> Iterator[Part]:
    """Parts of names in their order."""
    waiting: list[str] = []
    for name in names:
        if not name.endswith(SHARDS):
            waiting.append(name)
        if waiting and (len(waiting) == size or name.endswith(SHARDS)):
            yield FileList(tuple(waiting))
            waiting = []
        if name.endswith(TARS):
            yield TarShard(name)
        elif name.endswith(TABLES):
            yield from groups[name]
    if waiting:
        yield FileList(tuple(waiting))


def _expanded(argument: str, stdin: BinaryIO | None) -> list[str]:
    """The names of files and shards that an argument stands for."""
    if is_url(argument):
        return _names_at(argument)
    if argument.endswith(SHARDS):
        path = os.path.expanduser(argument)  # noqa: PTH111
        if not glob.has_magic(path) or os.path.exists(path):  # noqa: PTH110
            return [path]
        matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207
        if not matches:
            raise DataError(f"No file matches {argument}.")
        return matches
    return [str(photo) for photo in find_photos([argument], stdin)]


def _names_at(url: str) -> list[str]:
    """The URLs of files and shards that a URL stands for."""
    import fsspec

    try:
        files, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(f"{url} cannot be opened yet: {reason(error)}.") from error
    except ValueError as error:
        known = summarise(sorted(fsspec.available_protocols()), 100)
        raise UsageError(f"{url} is of a kind that is not known ({reason(error)}); known are {known}.") from error
    try:
        if glob.has_magic(path):
            names = [name for name in files.glob(path) if is_image_file(_last(name)) or name.endswith(SHARDS)]
            missing = f"No image, .tar or .parquet matches {url}."
        elif not is_image_file(_last(path)) and not path.endswith(SHARDS) and files.isdir(path):
            names = [name for name in files.find(path) if is_image_file(_last(name))]
            missing = f"The folder {url} holds no image; name shards by a pattern, such as {url.rstrip('/')}/*.tar."
        else:
            return [url]
    except Exception as error:  # each object store has errors of its own
        raise DataError(f"Cannot list {url}: {reason(error)}.") from error
    if not names:
        raise DataError(missing)
    return [files.unstrip_protocol(name) for name in sorted(names)]


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _row_groups(url: str, column: str | None) -> list[ParquetRowGroup]:
    """The row groups of a parquet file that are not empty."""
    import pyarrow
    import pyarrow.parquet

    try:
        with open_binary(url) as stream, pyarrow.parquet.ParquetFile(stream) as table:
            schema, about = table.schema_arrow, table.metadata
            rows = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
    except FileNotFoundError as error:
        raise DataError(f"There is no file {url}.") from error
    except Exception as error:  # of pyarrow and of object stores
        raise DataError(f"{url} cannot be read as parquet: {reason(error)}.") from error
    chosen = column or next((name for name in COLUMNS if name in schema.names), None)
    if chosen not in schema.names:
        asked = f'"{column}"' if column else f"of photos ({', '.join(COLUMNS)})"
        raise UsageError(f"{url} has no column {asked}; it has {', '.join(schema.names)}: name one with --column.")
    assert chosen is not None
    kind = schema.field(chosen).type
    fields = {field.name for field in kind} if pyarrow.types.is_struct(kind) else set()
    if not (_is_bytes_or_text(kind) or fields & {"bytes", "path"}):
        raise UsageError(
            f'The column "{chosen}" of {url} is {kind}; it should hold bytes or paths: name another with --column.'
        )
    firsts = [sum(rows[:group]) for group in range(len(rows))]
    return [ParquetRowGroup(url, group, firsts[group], count, chosen) for group, count in enumerate(rows) if count]


def _is_bytes_or_text(kind: object) -> bool:
    from pyarrow import types

    return any(
        is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_string, types.is_large_string)
    )
