"""The floor of input and output: what is read is a regular file; what is written is there whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Literal

from showtell.errors import DataError, UsageError


def cache_folder() -> Path:
    """The folder of files that can be made again: that of SHOWTELL_CACHE, else showtell/ in the user's ~/.cache."""
    if given := os.environ.get("SHOWTELL_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "showtell"


# --- reading ---


def is_named_pipe(path: Path) -> bool:
    """Whether a path is a pipe made by `mkfifo`, whose other end may never be opened, and none of the shell."""
    is_of_shell = path.is_relative_to("/dev") or path.is_relative_to("/proc")
    with suppress(OSError, ValueError):  # a text that can be no name is no pipe
        return not is_of_shell and stat.S_ISFIFO(path.stat().st_mode)
    return False


def open_file(path: Path, max_bytes: int | None = None) -> BinaryIO:
    """Open a regular file of at most `max_bytes`, or the pipe of a shell, to read bytes; all else is a DataError."""
    try:
        status = path.stat()
        is_pipe_of_shell = stat.S_ISFIFO(status.st_mode) and not is_named_pipe(path)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or is_pipe_of_shell):
            raise DataError(f"{path} is a device, a pipe or a socket; give a regular file.")
        if max_bytes is not None and status.st_size > max_bytes:
            size, largest = status.st_size / 2**20, max_bytes // 2**20
            raise DataError(f"{path} has {size:,.0f} MB, more than such a file may have ({largest:,} MB).")
        return path.open("rb")
    except (FileNotFoundError, ValueError) as error:  # ValueError: no path has a null byte in it
        raise DataError(f"There is no file {path}.") from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path | str, error: OSError) -> DataError:
    """The error of a file that the disk or its permissions keep from being read."""
    return DataError(f"Cannot read {path}: {(error.strerror or str(error)).rstrip('.')}.")


def listed_paths(text: str) -> list[str]:
    """The paths that a text names: several in brackets, "[a, b]", unless that is a path itself; else the text."""
    if not (text.startswith("[") and text.endswith("]")) or os.path.lexists(text):
        return [text]
    return [path for part in text[1:-1].split(",") if (path := part.strip())]


def names_of(paths: Sequence[str]) -> list[str]:
    """A short name for each path: its last part, or all of it where others end in the same."""
    last = [Path(path).absolute().name for path in paths]
    return [path if last.count(name) > 1 else name for path, name in zip(paths, last, strict=True)]


def read_bytes(path: Path, limit: int = -1, max_bytes: int | None = None) -> bytes:
    """The content of a file of at most `max_bytes`, or its first `limit` bytes; see `open_file`."""
    with open_file(path, max_bytes) as stream:
        try:
            return stream.read(limit)
        except OSError as error:
            raise unreadable(path, error) from error


def read_text(path: Path, form: str = "text", *, escape: bool = False) -> str:
    """The text of a UTF-8 file; `form` is for messages ("CSV"), `escape` keeps other bytes as file names have them."""
    content = read_bytes(path)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is in UTF-16; save it as {form} in UTF-8.")
    try:
        text = content.decode("utf-8-sig", "surrogateescape" if escape else "strict")
    except UnicodeDecodeError as error:
        raise not_utf8(path, content.count(b"\n", 0, error.start) + 1, form) from error
    if "\0" in text:
        raise DataError(f"{path} has null bytes; save it as {form} in UTF-8.")
    return text


def not_utf8(path: Path, line: int, form: str) -> DataError:
    """The error of a text file with a line that is not UTF-8; see `read_text`."""
    return DataError(f"{path} is not in UTF-8: line {line} cannot be read; save it as {form} in UTF-8.")


def read_json(path: Path, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Read a JSON file; see `read_text` and `parse_json`. What `object_hook` returns of an object takes its place."""
    text = read_text(path, "JSON")
    if not text.strip():
        raise DataError(f"{path} is empty; it should hold JSON.")
    return parse_json(text, str(path), object_hook)


def parse_json(text: str, name: str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse JSON in which no object has a key twice; `name` is what messages call it."""

    def unique(pairs: list[tuple[str, Any]]) -> Any:
        content = dict(pairs)
        if len(content) != len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise DataError(f'{name} has the key "{twice}" twice in one object; keep one of them.')
        return content if object_hook is None else object_hook(content)

    try:
        content = json.loads(text, object_pairs_hook=unique)
        if "\\ud" in text.lower():  # escapes of half a character, which nothing can write; not bytes of file names
            json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogateescape")
        return content
    except json.JSONDecodeError as error:
        where = f"{error.msg.removesuffix(' starting at')} at line {error.lineno}, column {error.colno}"
        is_cut_off = error.msg.startswith("Unterminated") or error.pos >= len(text.rstrip())
        advice = "; it seems cut off, get it whole" if is_cut_off and text.strip() else ""
        raise DataError(f"{name} is not valid JSON: {where}{advice}.") from error
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise DataError(f"{name} holds {half!a}, which is no character; save it as valid Unicode.") from error
    except RecursionError as error:
        raise DataError(f"{name} cannot be read as JSON: its lists and objects are nested too deeply.") from error
    except ValueError as error:  # an integer of more than 4,300 digits
        raise DataError(f"{name} cannot be read as JSON: it holds a number of too many digits.") from error


def read_log(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log in JSON lines; one being written is ignored, one that is no object is a DataError."""
    *complete, _ = read_text(path, "JSON lines").split("\n")
    records = []
    for number, line in enumerate(complete, start=1):
        if not isinstance(record := parse_json(line, f"Line {number} of {path}"), dict):
            raise DataError(f"Line {number} of {path} is not a JSON object; the log is damaged.")
        records.append(record)
    return records


# --- writing ---

_TEMPORARY = ".showtell-"  # how the names of files begin that are not whole yet


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Remove what `writing` left in folders when it was killed; whoever is writing holds a lock on his."""
    existing = (folder for folder in set(folders) if os.path.isdir(folder))  # noqa: PTH112 (its name may be too long)
    for file in (file for folder in existing for file in folder.glob(f"{_TEMPORARY}*.tmp")):
        with suppress(OSError), file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream to write a file with, which is there whole when the block ends, and not at all if that fails.

    It takes the place and the permissions of a file that is there, and the place of a link, not of what that leads to.
    A device or a pipe of the shell, such as /dev/stdout, is written to as it is.
    """
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}.tmp")
    try:
        if is_named_pipe(path):
            raise DataError(f"Cannot write {path}: it is a named pipe.")
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                yield stream
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            with suppress(OSError):  # not every disk has locks, which are for `remove_leftovers`
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):  # nothing is there, or the disk has no permissions
                os.fchmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            temporary.replace(path)
    except OSError as error:
        raise DataError(f"Cannot write {path}: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):  # after success it is not there, nor in a folder that could not be made
            temporary.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; see `writing`."""
    with writing(path) as stream:
        stream.write(content)


def write_text(path: Path, content: str) -> None:
    r"""Write a UTF-8 text file whole or not at all. Bytes of file names that are no UTF-8 are escaped, as in \udcff."""
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: Any, indent: int | None = None) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent) + "\n")


def write_whole(stream: RawIOBase, content: bytes) -> None:
    """Write to a stream without a buffer, which may take a part at a time; an OSError if the rest does not fit."""
    while content:
        content = content[stream.write(content) or 0 :]


@contextmanager
def locked(file: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock between processes, a file that is there until it is free; a BlockingIOError if another has it."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if not os.fstat(descriptor).st_nlink:
                continue  # whoever held it has removed the file since we opened it
            try:
                yield
            finally:
                with suppress(OSError):
                    file.unlink()
            return
        finally:
            os.close(descriptor)


def _sibling(folder: Path, suffix: str) -> Path:
    return folder.with_name(f".{folder.name}.{suffix}")


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder whole or not at all, in place of one that may be there; `fill` is called with an empty folder.

    Not every system replaces a folder atomically: there is a moment when the old one has been moved aside and the new
    one has not been moved in. `recover_folder` repairs that after a kill.
    """
    new = _sibling(folder, "new")
    try:
        recover_folder(folder)
        new.mkdir(parents=True)
        fill(new)
        for path in filter(Path.is_file, new.rglob("*")):
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        new.rename(_sibling(folder, "complete"))
        recover_folder(folder)
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error
    finally:  # after what `fill` finds wrong, or an interrupt
        shutil.rmtree(new, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Finish what a killed `write_folder` began: the newest complete version ends up at `folder`."""
    complete, old = _sibling(folder, "complete"), _sibling(folder, "old")
    if complete.exists():  # whole, but not yet in place
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        complete.rename(folder)
    elif not folder.exists() and old.exists():
        old.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(_sibling(folder, "new"), ignore_errors=True)


# --- where to write ---


def refuse_overwriting(out: Path, option: str, inputs: Iterable[Path]) -> None:
    """Raise a UsageError if the file of an option is one of the files and folders that are read, or inside one."""
    resolved = out.resolve()
    for path in inputs if out.exists() else ():
        if path.resolve() in (resolved, *resolved.parents):
            raise UsageError(f"{option} {out} would replace what is read from {path}; choose another file.")


def require_writable(out: Path, option: str, kind: Literal["file", "folder", "either"]) -> None:
    """Make sure that what `option` names can be written, before the work whose result it will hold."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            out.lstat()
    except OSError as error:  # a name that is too long, a folder that nobody may look into
        raise DataError(f"Cannot write {out}: {error.strerror}.") from error
    what = "a named pipe" if is_named_pipe(out) else "the root of all files" if out.anchor == str(out) else ""
    if what:
        raise UsageError(f"{option} {out} is {what}; choose another name.")
    if out.is_dir() and kind == "file":
        raise UsageError(f"{out} is a folder; {option} needs the name of a file.")
    if out.is_file() and kind == "folder":
        raise UsageError(f"{out} is a file; {option} needs the name of a folder.")
    existing = next((path for path in (out, *out.parents) if path.exists()), Path())
    if not os.access(existing, os.W_OK):
        raise DataError(f"Cannot write {out}: {os.strerror(errno.EACCES)}.")
    if existing != out and not existing.is_dir():
        raise DataError(f"Cannot write {out}: {existing} is a file and no folder.")
