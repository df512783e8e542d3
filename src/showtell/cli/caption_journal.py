"""The journal of captions on their way to a file: kept batch by batch in FILE.part, from which a second run resumes.

The first line of FILE.part says what the captions were made with, each further one is a record (`caption_formats.py`).
A batch is on the disk before the next one begins. Only whole batches count when work is resumed, so that the batches to
come, and with them the last digits of the probabilities, are those of an undisturbed run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from showtell.config import differences, flat
from showtell.errors import DataError, UsageError, summarise
from showtell.files import parse_json, write_whole, writing

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.captions import CaptionResult
    from showtell.decoding import DecodingConfig

_KIND = "showtell captions"
_OPENING = f'{{"kind": "{_KIND}"'.encode()  # of every journal


def made_with_of(captioner: Captioner, settings: DecodingConfig, *, attention: bool = False) -> dict[str, Any]:
    """Whatever captions depend on, as the journal keeps it."""
    fingerprints = captioner.about.fingerprints
    first, *others = fingerprints.get("members", [fingerprints])
    made_with: dict[str, Any] = {"checkpoint": first, "decoding": settings.model_dump(mode="json")}
    made_with |= {"ensemble": others} if others else {}
    made_with |= {"attention": True} if attention else {}
    made_with |= {"calibration": captioner.calibration.to_json()} if captioner.calibration else {}
    return made_with


class Journal:
    """The captions so far. Enter it to lock the file; leaving it keeps what there is.

    Args:
        out: the file that shall be written in the end.
        made_with: whatever the captions depend on; anything that JSON can hold.
        batch_size: records of a whole batch.
    """

    def __init__(self, out: Path, made_with: dict[str, Any], batch_size: int) -> None:
        if out.is_dir():
            raise UsageError(f"{out} is a folder; --out needs the name of a file.")
        self.part = out.with_name(out.name + ".part")
        if self.part.exists() and not self.part.is_file():  # to open a pipe would wait for ever
            raise DataError(f"{self.part} is in the way: it is no file; move it, or choose another --out.")
        self._out = out
        self._head = {"kind": _KIND, "batch_size": batch_size, **json.loads(json.dumps(made_with))}
        self._batch_size = batch_size
        self._offsets: dict[str, int] = {}  # name of a photo: where its line begins, in bytes
        self._is_ours = False
        self._lock = FileLock(out.with_name(f".{out.name}.lock"))

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            try:
                self._out.parent.mkdir(parents=True, exist_ok=True)
                opened.enter_context(self._lock.acquire(timeout=0))
                opened.callback(self._remove_empty)
                # Not buffered, so that a write that failed is not tried again on closing.
                self._writer = opened.enter_context(self.part.open("ab", buffering=0))
                self._reader = opened.enter_context(self.part.open("rb"))
                self._read()
                self._is_ours = True
            except Timeout as error:
                raise DataError(
                    f"Another program is writing {self._out}; wait for it, or choose another --out."
                ) from error
            except OSError as error:
                raise self._cannot_write(error) from error
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opened.close()

    def _remove_empty(self) -> None:
        """Take a journal without captions away: nothing is to be resumed."""
        if self._is_ours and not self._offsets:
            self.part.unlink(missing_ok=True)

    def __contains__(self, name: object) -> bool:
        return str(name) in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, records: Sequence[CaptionResult]) -> None:
        """Keep one batch.

        Raises:
            DataError: it cannot be written, such as on a full disk; what was kept before is still there.
        """
        lines = [_line(record) for record in records]
        offsets = accumulate(map(len, lines), initial=self._writer.seek(0, os.SEEK_END))
        try:
            self._write(b"".join(lines))
        except OSError as error:
            raise self._cannot_write(error) from error
        self._offsets |= {record["image"]: offset for record, offset in zip(records, offsets, strict=False)}

    def finish(self, photos: Iterable[object], style: Callable[[Iterable[CaptionResult]], Iterator[str]]) -> None:
        """Write the file whole, in the order of the photos, and take the journal away.

        Raises:
            DataError: it cannot be written; the journal is still there.
        """
        with writing(self._out) as stream:
            for text in style(self._records(photos)):
                stream.write(text.encode("utf-8", "surrogateescape"))
        self.part.unlink()

    def _records(self, photos: Iterable[object]) -> Iterator[CaptionResult]:
        for photo in photos:
            self._reader.seek(self._offsets[str(photo)])
            yield json.loads(self._reader.readline())

    def _read(self) -> None:
        """Find the whole batches that are there already, and cut off what comes behind them."""
        head = self._reader.readline()
        if not head.endswith(b"\n") and head[: len(_OPENING)] == _OPENING[: len(head)]:  # new, or killed at once
            self._writer.truncate(0)
            self._write(_line(self._head))
            return
        self._compare(head)
        names: list[str] = []
        offsets = [self._reader.tell()]
        for line in self._reader:
            if not line.endswith(b"\n"):  # killed while it was written
                break
            names.append(self._name_of(line, len(names)))
            offsets.append(offsets[-1] + len(line))
        whole = len(names) // self._batch_size * self._batch_size
        self._offsets = dict(zip(names[:whole], offsets, strict=False))
        self._writer.truncate(offsets[whole])

    def _compare(self, line: bytes) -> None:
        """Make sure that what is there was made with the same settings."""
        if not line.startswith(_OPENING):
            raise DataError(f"{self.part} is in the way: it is not of showtell; move it, or choose another --out.")
        before = parse_json(line.decode(errors="replace"), f"The first line of {self.part}")
        changed = [
            f"{key} (was {json.dumps(old)}, now {json.dumps(new)})"
            for key, (old, new) in differences(flat(before), flat(self._head)).items()
        ]
        if changed:
            raise DataError(
                f"The captions in {self.part} were made with other settings: {summarise(changed)}; use the old ones, "
                "choose another --out, or delete that file to begin anew."
            )

    def _write(self, content: bytes) -> None:
        write_whole(self._writer, content)
        os.fsync(self._writer.fileno())

    def _cannot_write(self, error: OSError) -> DataError:
        kept = f"; {len(self)} photos are kept in {self.part}" if len(self) else ""
        return DataError(f"Cannot write {self._out}: {error.strerror or error}{kept}.")

    def _name_of(self, line: bytes, number: int) -> str:
        """The photo of a line, after this number of others.

        Raises:
            DataError: the line is damaged.
        """
        try:
            return str(json.loads(line)["image"])
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            whole = number // self._batch_size * self._batch_size
            rest = f"it and all lines behind it to keep {whole} photos, or " if whole else ""
            raise DataError(
                f"Line {number + 2} of {self.part} is damaged: delete {rest}the file to begin anew."
            ) from error


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"
