"""Captions on their way to a file: kept batch by batch in FILE.part, so that whatever happens, a second try goes on.

The first line of FILE.part says what the captions were made with, each further one is a record (`caption_formats.py`).
A batch is on the disk before the next one begins. Only whole batches count when work goes on, so that the batches to
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

from showtell.config import flat
from showtell.errors import DataError, UsageError, summarise
from showtell.files import write_whole, writing

if TYPE_CHECKING:
    from showtell.captions import CaptionResult

_KIND = "showtell captions"


class Journal:
    """What is captioned so far. Enter it to lock the file; leaving it keeps what there is.

    Args:
        out: the file that shall be written in the end.
        made_with: whatever the captions depend on; anything that JSON can hold.
        batch_size: records of a whole batch.
        key: what names a record, and no two records alike.
        things: what messages call the records.
        in_place: the journal is the file itself, which nothing finishes.
    """

    def __init__(
        self,
        out: Path,
        made_with: dict[str, Any],
        batch_size: int,
        *,
        key: str = "image",
        things: str = "photos",
        in_place: bool = False,
    ) -> None:
        if out.is_dir():
            raise UsageError(f"{out} is a folder; --out needs the name of a file.")
        self.part = out if in_place else out.with_name(out.name + ".part")
        self._out = out
        self._head = {"kind": _KIND, "batch_size": batch_size, **json.loads(json.dumps(made_with))}
        self._batch_size = batch_size
        self._key = key
        self._things = things
        self._places: dict[str, int] = {}  # name of a record: where its line begins
        self._is_ours = False
        self._lock = FileLock(out.with_name(f".{out.name}.lock"))

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            try:
                self._out.parent.mkdir(parents=True, exist_ok=True)
                opened.enter_context(self._lock.acquire(timeout=0))
                opened.callback(self._leave_nothing_empty)
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

    def _leave_nothing_empty(self) -> None:
        """Take a journal without captions away: the next try has nothing to agree with."""
        if self._is_ours and not self._places:
            self.part.unlink(missing_ok=True)

    def __contains__(self, name: Path | str) -> bool:
        return str(name) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def append(self, records: Sequence[CaptionResult]) -> None:
        """Keep one batch.

        Raises:
            DataError: it cannot be written, such as on a full disk; what was kept before is still there.
        """
        lines = [_line(record) for record in records]
        place = self._writer.seek(0, os.SEEK_END)
        places = accumulate(map(len, lines), initial=place)
        try:
            self._write(b"".join(lines))
        except OSError as error:
            raise self._cannot_write(error) from error
        self._places |= {record[self._key]: place for record, place in zip(records, places, strict=False)}

    def finish(self, photos: Iterable[Path], style: Callable[[Iterable[CaptionResult]], Iterator[str]]) -> None:
        """Write the file whole, in the order of the photos, and take the journal away.

        Raises:
            DataError: it cannot be written; the journal is still there.
        """
        with writing(self._out) as stream:
            for text in style(self.records(photos)):
                stream.write(text.encode("utf-8", "surrogateescape"))
        self.part.unlink()

    def records(self, names: Iterable[Path | str]) -> Iterator[CaptionResult]:
        """The records of these names, which it has."""
        for name in names:
            self._reader.seek(self._places[str(name)])
            yield json.loads(self._reader.readline())

    def _read(self) -> None:
        """Find the whole batches that are there already, and cut off what comes behind them."""
        head = self._reader.readline()
        if not head.endswith(b"\n"):  # new, or killed right at the beginning
            self._writer.truncate(0)
            self._write(_line(self._head))
            return
        self._compare(head)
        names, places = [], [self._reader.tell()]
        for line in self._reader:
            name = self._name_of(line)
            if name is None:
                break
            names.append(name)
            places.append(places[-1] + len(line))
        whole = len(names) // self._batch_size * self._batch_size
        self._places = dict(zip(names[:whole], places, strict=False))
        self._writer.truncate(places[whole])

    def _compare(self, line: bytes) -> None:
        """Make sure that what is there was made with the same settings."""
        try:
            before = json.loads(line)
        except ValueError:
            before = None
        if not isinstance(before, dict) or before.get("kind") != _KIND:
            raise DataError(f"{self.part} is in the way: it is not of showtell; move it, or choose another --out.")
        old, new = flat(before), flat(self._head)
        changed = [
            f"{key} (was {json.dumps(old.get(key))}, now {json.dumps(new.get(key))})"
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
        if changed:
            raise DataError(
                f"The captions in {self.part} were made with other settings: {summarise(changed)}; go on with the old "
                "ones, choose another --out, or delete that file to begin anew."
            )

    def _write(self, content: bytes) -> None:
        write_whole(self._writer, content)
        os.fsync(self._writer.fileno())

    def _cannot_write(self, error: OSError) -> DataError:
        kept = f"; {len(self)} {self._things} are kept in {self.part}" if len(self) else ""
        return DataError(f"Cannot write {self._out}: {error.strerror or error}{kept}.")

    def _name_of(self, line: bytes) -> str | None:
        """Which record a line is; None for one that was not written to its end."""
        try:
            return json.loads(line)[self._key] if line.endswith(b"\n") else None
        except json.JSONDecodeError:
            return None


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"
