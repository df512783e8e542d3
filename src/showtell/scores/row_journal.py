"""Rows of numbers that took long to make, kept in the user's cache folder as they are made.

A journal belongs to one model with one set of settings: a row is a function of its key alone. So scoring that was
interrupted resumes, and scoring another system on the same photos computes only what is new. A record is a key, a row
and a checksum of both; half a record, which a kill left, is removed by the next writer, and a damaged one made anew.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from filelock import FileLock

from showtell.errors import DataError
from showtell.files import cache_folder
from showtell.scores.model_settings import Reporting

KEY_BYTES = 16
Rows = npt.NDArray[np.float32]
Make = Callable[[list[int]], Iterable[tuple[list[int], Rows]]]  # of some numbers, batches with the rows of theirs


def key_of(*parts: bytes | str) -> bytes:
    """The key of what some parts make together."""
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    for part in parts:
        content = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.digest()


class RowJournal:
    """The rows of one model.

    Args:
        name: of the file, which says what rows depend on besides their keys.
        width: numbers in a row.
    """

    def __init__(self, name: str, width: int) -> None:
        self.path = cache_folder() / "scores" / f"{name}.rows"
        self.width = width
        self._record = np.dtype([("key", f"V{KEY_BYTES}"), ("row", "<f4", (width,)), ("checksum", "<u4")])
        self._rows: dict[bytes, Rows] = {}
        self._stored = self._open()
        self._index = {key.tobytes(): number for number, key in enumerate(self._stored["key"])}

    def _open(self) -> npt.NDArray[np.void]:
        try:
            size = self.path.stat().st_size // self._record.itemsize
            if size:
                return np.memmap(self.path, self._record, "r", shape=(size,))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise DataError(f"Cannot read {self.path}: {error.strerror or error}; delete it.") from error
        return np.empty(0, self._record)

    def rows(self, keys: Sequence[bytes], make: Make, title: str, reporting: Reporting) -> Rows:
        """The row of each key, (keys, width); those that are not there are made, and kept batch by batch.

        Args:
            keys: one may occur several times.
            make: makes the rows of the keys with some numbers, in any order.
            title: of the work.
            reporting: shows its progress.
        """
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        missing = [number for key, number in first.items() if self.get(key) is None]
        if missing:
            with reporting(title) as report:
                report(len(first) - len(missing), len(first))
                for numbers, rows in make(missing):
                    self._append([keys[number] for number in numbers], rows)
                    report(len(numbers), len(first))
        return np.array([self.get(key) for key in keys], np.float32).reshape(-1, self.width)

    def get(self, key: bytes) -> Rows | None:
        """The row of a key: (width,); None where it was not made yet."""
        if key in self._rows:
            return self._rows[key]
        number = self._index.get(key)
        if number is None:
            return None
        record = self._stored[number]
        row: Rows = np.array(record["row"])
        return row if int(record["checksum"]) == _checksum(key, row) else None

    def _append(self, keys: Sequence[bytes], rows: Rows) -> None:
        """Keep rows: (keys, width).

        Raises:
            DataError: the cache folder cannot be written.
        """
        records = np.empty(len(keys), self._record)
        records["key"] = np.frombuffer(b"".join(keys), f"V{KEY_BYTES}")
        records["row"] = rows
        records["checksum"] = [_checksum(key, row) for key, row in zip(keys, records["row"], strict=True)]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock")), self.path.open("ab") as stream:
                stream.truncate(stream.tell() // self._record.itemsize * self._record.itemsize)
                stream.write(records.tobytes())
        except OSError as error:
            raise DataError(
                f"Cannot write {self.path}: {error.strerror or error}; SHOWTELL_CACHE names another cache folder."
            ) from error
        self._rows.update(zip(keys, records["row"], strict=True))


def _checksum(key: bytes, row: Rows) -> int:
    return zlib.crc32(row.astype("<f4").tobytes(), zlib.crc32(key))
