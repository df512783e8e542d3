"""The journal of captions on their way to a file: kept batch by batch in FILE.part, from which a second run resumes.

The first line of FILE.part says what the captions were made with, each further one is a record (`caption_formats.py`).
A batch is on the disk before the next one begins. Only whole batches count when work is resumed, so that the batches to
come, and with them the last digits of the probabilities, are those of an undisturbed run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import RawIOBase
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout

from showtell.config import differences, flat
from showtell.errors import DataError, summarise
from showtell.files import write_whole, writing

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.captions import CaptionResult
    from showtell.decoding import DecodingConfig

_OPENING = b'{"kind": "showtell captions"'  # of every journal


def made_with_of(captioner: Captioner, settings: DecodingConfig, *, attention: bool = False) -> dict[str, Any]:
    """Whatever captions depend on, as the journal keeps it."""
    fingerprints = captioner.about.fingerprints
    first, *others = fingerprints.get("members", [fingerprints])
    made_with: dict[str, Any] = {"checkpoint": first, "decoding": settings.model_dump(mode="json")}
    made_with |= {"ensemble": others} if others else {}
    made_with |= {"attention": True} if attention else {}
    made_with |= {"calibration": captioner.calibration.to_json()} if captioner.calibration else {}
    return made_with


@contextmanager
def open_journal(out: Path, made_with: dict[str, Any], batch_size: int) -> Iterator[Journal]:
    """The journal of a file that shall be written in the end, for this program alone.

    Args:
        out: the file.
        made_with: whatever the captions depend on; anything that JSON can hold.
        batch_size: records of a whole batch.

    Raises:
        DataError: another program has it open, or it was begun with other settings.
    """
    part = out.with_name(out.name + ".part")
    lock = FileLock(out.with_name(f".{out.name}.lock"), timeout=0)
    try:  # not buffered, so that a write that failed is not tried again on closing
        out.parent.mkdir(parents=True, exist_ok=True)
        with lock, part.open("ab", buffering=0) as writer, part.open("rb") as reader:
            journal = Journal(out, part, writer, reader)
            journal.begin(_line({"kind": "showtell captions", "batch_size": batch_size, **made_with}), batch_size)
            try:
                yield journal
            finally:
                if not journal.offsets:
                    part.unlink(missing_ok=True)
    except Timeout as error:
        raise DataError(f"Another program is writing {out}; wait for it, or choose another --out.") from error
    except OSError as error:
        raise DataError(f"Cannot write {out}: {error.strerror or error}.") from error


class Journal:
    """The captions so far; see `open_journal`."""

    def __init__(self, out: Path, part: Path, writer: RawIOBase, reader: BinaryIO) -> None:
        self.part = part
        self.offsets: dict[str, int] = {}  # name of a photo: where its line begins, in bytes
        self._out = out
        self._writer = writer
        self._reader = reader

    def begin(self, head: bytes, batch_size: int) -> None:
        """Write the first line, or find the whole batches that are there already and cut off whatever is behind them.

        Raises:
            DataError: the file is not of showtell, or was begun with another first line.
        """
        before = self._reader.readline()
        if not before.endswith(b"\n") and before[: len(_OPENING)] == _OPENING[: len(before)]:  # new, or killed at once
            self._writer.truncate(0)
            self._write(head)
            return
        self._require_same(before, head)
        names: list[str] = []
        offsets = [len(before)]
        for line in self._reader:
            try:
                names.append(json.loads(line)["image"])
            except ValueError:  # killed while it was written
                break
            offsets.append(offsets[-1] + len(line))
        whole = len(names) // batch_size * batch_size
        self.offsets = dict(zip(names[:whole], offsets, strict=False))
        self._writer.truncate(offsets[whole])

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
            kept = f"{len(self.offsets)} photos are kept in {self.part}"
            raise DataError(f"Cannot write {self._out}: {error.strerror or error}; {kept}.") from error
        self.offsets |= {record["image"]: offset for record, offset in zip(records, offsets, strict=False)}

    def finish(self, photos: Iterable[str], writer: Callable[[Iterable[CaptionResult]], Iterator[str]]) -> None:
        """Write the file whole, in the order of the photos, and take the journal away.

        Raises:
            DataError: it cannot be written; the journal is still there.
        """
        with writing(self._out) as stream:
            for text in writer(map(self._record, photos)):
                stream.write(text.encode("utf-8", "surrogateescape"))
        self.part.unlink()

    def _record(self, photo: str) -> CaptionResult:
        self._reader.seek(self.offsets[photo])
        record: CaptionResult = json.loads(self._reader.readline())
        return record

    def _require_same(self, before: bytes, now: bytes) -> None:
        """Make sure that what is there was made with the same settings."""
        if not before.startswith(_OPENING):
            raise DataError(f"{self.part} is in the way: it is not of showtell; move it, or choose another --out.")
        changed = [
            f"{key} (was {json.dumps(old)}, now {json.dumps(new)})"
            for key, (old, new) in differences(flat(json.loads(before)), flat(json.loads(now))).items()
        ]
        if changed:
            raise DataError(
                f"The captions in {self.part} were made with other settings: {summarise(changed)}; use the old ones, "
                "choose another --out, or delete that file to begin anew."
            )

    def _write(self, content: bytes) -> None:
        write_whole(self._writer, content)
        os.fsync(self._writer.fileno())


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"
