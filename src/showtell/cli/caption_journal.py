"""The journal of captions on their way to a file: kept batch by batch in FILE.part, from which a second run resumes.

The first line of FILE.part says what the captions were made with, each further line is a result (`captions.py`). A
batch is on the disk before the next begins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from showtell.config import differences, flat
from showtell.errors import DataError, summarise
from showtell.files import locked, remove_leftovers, write_whole

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.captions import CaptionResult
    from showtell.decoding import DecodingConfig

_OPENING = b'{"kind": "showtell captions"'  # of every journal
Journal = tuple[dict[str, bytes], Callable[[Iterable["CaptionResult"]], None]]


def provenance(captioner: Captioner, settings: DecodingConfig) -> dict[str, Any]:
    """Whatever captions depend on, as the journal keeps it."""
    return {
        "checkpoints": [captioner.about.fingerprints],
        "decoding": settings.model_dump(mode="json"),
        "calibration": captioner.calibration.to_json() if captioner.calibration else None,
    }


@contextmanager
def open_journal(out: Path, made_with: dict[str, Any]) -> Iterator[Journal]:
    """Results so far, JSON by the photo's name, and what adds a batch; a DataError if in use or of other settings."""
    part = out.with_name(out.name + ".part")
    head = json.loads(json.dumps({"kind": "showtell captions", **made_with}))  # as it is read back: tuples are lists
    results: dict[str, bytes] = {}
    try:  # not buffered, so that a write that failed is not tried again on closing
        out.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers([out.parent])
        if part.is_symlink() or (part.exists() and not part.is_file()):
            _require_ours(part, b"a link, a folder or a pipe")
        with locked(out.with_name(f".{out.name}.lock")), part.open("ab", buffering=0) as stream:

            def append(lines: Iterable[dict[str, Any]]) -> None:
                write_whole(stream, b"".join(json.dumps(line).encode("ascii") + b"\n" for line in lines))
                os.fsync(stream.fileno())

            def add(batch: Iterable[CaptionResult]) -> None:
                batch = list(batch)
                append(batch)
                results.update((result["image"], json.dumps(result).encode("ascii")) for result in batch)

            begun, *lines = part.read_bytes().splitlines(keepends=True) or [b""]
            if begun.endswith(b"\n"):
                _require_same(part, begun, head)
                end = len(begun)
                for line in lines:
                    if (name := _name_in(line)) is None:  # a kill left it unfinished
                        break
                    results[name], end = line, end + len(line)
                stream.truncate(end)
            else:  # new, or killed at once
                _require_ours(part, begun)
                stream.truncate(0)
                append([head])
            try:
                yield results, add
            finally:
                if os.fstat(stream.fileno()).st_size == len(json.dumps(head)) + 1:  # nothing but the settings
                    part.unlink(missing_ok=True)
    except BlockingIOError as error:
        raise DataError(f"Another program is writing {out}; wait for it, or choose another --out.") from error
    except OSError as error:
        kept = f"; {len(results)} photos are kept in {part}" if results else ""
        raise DataError(f"Cannot write {out}: {error.strerror or error}{kept}.") from error


def _name_in(line: bytes) -> str | None:
    """The name of the photo in a line of the journal; None if the line is not whole."""
    try:
        return str(json.loads(line)["image"]) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None


def _require_ours(part: Path, begun: bytes) -> None:
    """Make sure that what is there begins as a journal does, as far as it goes."""
    if begun[: len(_OPENING)] != _OPENING[: len(begun)]:
        raise DataError(f"{part} is in the way: it is not of showtell; move it, or choose another --out.")


def _require_same(part: Path, begun: bytes, head: dict[str, Any]) -> None:
    """Make sure that what is there was made with the same settings."""
    _require_ours(part, begun)
    changed = [
        f"{key} (was {json.dumps(old)}, now {json.dumps(new)})"
        for key, (old, new) in differences(flat(json.loads(begun)), flat(head)).items()
    ]
    if changed:
        raise DataError(
            f"The captions in {part} were made with other settings: {summarise(changed)}; use the old ones, choose "
            "another --out, or delete that file to begin anew."
        )
