"""Files are written whole or not at all: to a temporary name beside the target, flushed, then renamed."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from showtell.errors import DataError, UsageError


def cache_folder() -> Path:
    """Where showtell keeps what it can make again."""
    if given := os.environ.get("SHOWTELL_CACHE"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "showtell"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "showtell"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "showtell"


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream to write a file with, which is there whole when the block ends, and not at all if that fails.

    A device or a pipe, such as /dev/stdout, is written to as it is.

    Raises:
        DataError: the folder cannot be written to, or the disk is full.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                yield stream
            return
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")  # a name has 255 bytes at most
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # there is none after success, and none to be had in a folder that is none
            temporary.unlink()


def refuse_overwriting(out: Path, option: str, inputs: Iterable[Path]) -> None:
    """Make sure that a file to write is none of those that are read, nor within a folder of them.

    Args:
        out: what will be written.
        option: what names it, for the message.
        inputs: files and folders.

    Raises:
        UsageError: it is; nothing was written yet.
    """
    if not out.exists():
        return
    place = out.resolve()
    for path in inputs:
        if path.resolve() in (place, *place.parents):
            raise UsageError(f"{option} {out} would replace what is read from {path}; choose another file.")


def require_output_name(out: Path, option: str) -> None:
    """Make sure that a path can name what is to be written.

    Args:
        out: a file or folder.
        option: its option, for messages.

    Raises:
        UsageError: it is the root of the file system or a named pipe.
    """
    if out == Path(out.anchor) and out.anchor:
        raise UsageError(f"{option} {out} is the root of all files; choose a name below it.")
    if is_named_pipe(out):
        raise UsageError(f"{option} {out} is a named pipe; choose another name.")


def require_writable_file(out: Path, option: str) -> None:
    """Make sure that a file can be written, before the work whose result it will hold.

    Args:
        out: the file.
        option: its option, for messages.

    Raises:
        UsageError: it is a folder or a named pipe.
        DataError: its folder cannot be written to, or is a file.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder; {option} needs the name of a file.")
    require_output_name(out, option)
    _require_writable(out)


def require_writable_folder(out: Path, option: str) -> None:
    """Make sure that a folder can be written, before the work whose result it will hold.

    Args:
        out: the folder, which may exist.
        option: its option, for messages.

    Raises:
        UsageError: it is the root of the file system, a file or a named pipe.
        DataError: the folder above it cannot be written to, or is a file.
    """
    require_output_name(out, option)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; {option} needs the name of a folder.")
    _require_writable(out)


def _require_writable(out: Path) -> None:
    folder = next((path for path in (out, *out.parents) if path.exists()), Path())
    if not os.access(folder, os.W_OK):
        raise DataError(f"Cannot write {out}: {os.strerror(errno.EACCES)}.")
    if folder != out and not folder.is_dir():
        raise DataError(f"Cannot write {out}: {folder} is a file and no folder.")


def is_named_pipe(path: Path) -> bool:
    """Whether a path is a pipe with a name of its own (`mkfifo`), whose other end may never be opened.

    The pipes of a shell, such as /dev/stdout or /dev/fd/63, are none: a process is at their other end.
    """
    return path.is_fifo() and not path.is_relative_to("/dev") and not path.is_relative_to("/proc")


def write_whole(stream: RawIOBase, content: bytes) -> None:
    """Write to a stream without a buffer, which may take a part at a time, such as what still fits on a full disk.

    Raises:
        OSError: the rest cannot be written.
    """
    while content:
        content = content[stream.write(content) or 0 :]


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        DataError: the folder cannot be written to, or the disk is full.
    """
    with writing(path) as stream:
        stream.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 text file whole or not at all."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent) + "\n")


def read_json(path: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Read a JSON file.

    Args:
        path: of the file.
        object_hook: called with each object; what it returns takes the object's place.

    Raises:
        DataError: the file is missing, empty, or not JSON; the message names the file and the place.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows tools begin a file with a mark
    except FileNotFoundError as error:
        raise DataError(f"There is no file {path}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file in UTF-8, so it cannot be read as JSON.") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    if not text.strip():
        raise DataError(f"{path} is empty; it should hold JSON.")
    return parse_json(text, str(path), object_hook)


def parse_json(text: str, name: str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse JSON in which no object has a key twice; `name` is what messages call it.

    Raises:
        DataError: it is not JSON, nested too deeply, has a key twice in an object or a number of too many digits.
    """

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise DataError(f'{name} has the key "{twice}" twice in one object; keep one of them.')
        return found if object_hook is None else object_hook(found)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError as error:
        raise DataError(f"{name} cannot be read as JSON: its lists and objects are nested too deeply.") from error
    except ValueError as error:  # what Python says of an integer of more than 4,300 digits
        raise DataError(f"{name} cannot be read as JSON: it holds a number of too many digits.") from error


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log in JSON lines; what somebody is just writing behind them is left for later.

    Raises:
        DataError: a line is not JSON.
    """
    try:
        *whole, _ = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"Line {line} of {path} is damaged: it is not text in UTF-8; delete the line.") from error
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror or error}.") from error
    return [parse_json(line, f"Line {number} of {path}") for number, line in enumerate(whole, start=1)]


def _beside(folder: Path, mark: str) -> Path:
    return folder.with_name(f".{folder.name}.{mark}")


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder whole or not at all, in place of one that may already be there.

    A folder cannot be replaced in one step everywhere, so there is a moment when the old one has been
    moved aside and the new one has not arrived. `recover_folder` puts that right after a kill.

    Args:
        folder: where the folder shall be.
        fill: called with an empty folder; writes the files into it.

    Raises:
        DataError: it cannot be written, or the disk is full; what was there before is still there.
    """
    new, old = _beside(folder, "new"), _beside(folder, "old")
    try:
        recover_folder(folder)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        fill(new)
        for path in new.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        complete = _beside(folder, "complete")
        new.rename(complete)
        if folder.exists():
            folder.rename(old)
        complete.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error
    except BaseException:  # what `fill` finds wrong, or an interrupt
        shutil.rmtree(new, ignore_errors=True)
        raise


def recover_folder(folder: Path) -> None:
    """Finish what a killed `write_folder` began: the newest whole version ends up at `folder`."""
    complete, old = _beside(folder, "complete"), _beside(folder, "old")
    if complete.exists():  # whole, but not yet in place
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        complete.rename(folder)
    elif not folder.exists() and old.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(_beside(folder, "new"), ignore_errors=True)
