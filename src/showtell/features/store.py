"""The feature store: one LMDB database with an entry per image, memory-mapped, half or single precision.

    with StoreWriter(path, about) as writer:
        writer.write({"42": ImageFeatures(vectors, size=(640, 480))})     # one transaction: all of them or none
    store = FeatureStore(path)
    features = collate_features([store["42"], store["43"]])               # Features of 2 images, padded

An entry is a header of 32 bytes and the arrays behind it, little-endian; docs/features.md has the layout. Metadata is
one more entry, under a key that no image can have. There is no pickle and nothing that depends on when it was written,
so that two stores of the same features are equal byte for byte, key by key.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import shutil
import struct
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

import filelock
import lmdb
import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from showtell.config import Config, differences
from showtell.errors import DataError, UsageError, summarise
from showtell.features.contract import Encoder
from showtell.files import parse_json
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, Regions

FORMAT = 2  # 2 has attributes; raised when an older showtell could not read what a newer one writes
_LOCK = "writing.lock"
METADATA = b"\0showtell"  # no file name and no number begins with a null byte
LONGEST_KEY = 511  # bytes, LMDB's limit

Precision = Literal["fp16", "fp32"]
DTYPES: dict[str, np.dtype] = {"fp16": np.dtype("<f2"), "fp32": np.dtype("<f4")}

# magic, CRC-32 of all that follows it, regions, feature size, width, height, which arrays there are, nothing
_HEADER = struct.Struct("<4sIIIIIII")
_MAGIC = b"STF1"
_HALF, _BOXES, _SCORES, _LABELS, _ATTRIBUTES = 1, 2, 4, 8, 16
_ALL_FLAGS = _HALF | _BOXES | _SCORES | _LABELS | _ATTRIBUTES
_LMDB_MAGIC = bytes.fromhex("dec0efbe")
_FULL = 2**16  # bytes; with fewer left LMDB fails in several ways
_FIRST_MAP = 64 * 2**20  # bytes of address space; doubled whenever it is full


def precision(name: str) -> Precision:
    """A precision by its name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in DTYPES:
        raise UsageError(f'There is no precision "{name}"; known are {", ".join(DTYPES)}.')
    return cast(Precision, name)


class StoreInfo(Config):
    """What a store says of itself."""

    format: int = Field(FORMAT, description="Version of the store's layout.")
    encoder: dict[str, Any] = Field(description="Settings of the encoder, without those of where its weights are from.")
    fingerprint: str = Field(description="Hash of the encoder's settings, preprocessing and weights.")
    preprocessing: Preprocessing | None = Field(
        None, description="How photos were prepared; not set for features of other tools."
    )
    dtype: Precision = Field(description="Precision of the stored numbers.")
    feature_size: int = Field(ge=1, le=2**20, description="Numbers of each feature vector, D.")
    categories: tuple[str, ...] = Field((), description="Names that the labels of regions are indices into.")
    attributes: tuple[str, ...] = Field((), description="Names that the attributes of regions are indices into.")

    @property
    def made_by(self) -> str:
        """The encoder for a message: its name and its fingerprint."""
        return f"{self.encoder.get('name')} (fingerprint {self.fingerprint})"

    @classmethod
    def of(cls, encoder: Encoder, dtype: Precision) -> StoreInfo:
        """Of features that an encoder makes."""
        return cls(
            encoder=encoder.config.feature_settings(),
            fingerprint=encoder.fingerprint(),
            preprocessing=encoder.preprocessing,
            dtype=dtype,
            feature_size=encoder.feature_size,
            categories=encoder.categories,
            attributes=encoder.attributes,
        )


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """What an encoder saw in one image. Arrays from a store are views into its file, not to be written to."""

    vectors: np.ndarray  # (R, D) float16 or float32
    size: tuple[int, int] = (0, 0)  # (width, height) of the upright photo in pixels; zeros where nobody knows
    boxes: np.ndarray | None = None  # (R, 4) float32: left, top, right, bottom in pixels of the upright photo
    scores: np.ndarray | None = None  # (R,) float32
    labels: np.ndarray | None = None  # (R,) int32, which of the store's categories; -1 for none
    attributes: np.ndarray | None = None  # (R,) int32, which of the store's attributes; -1 for none

    @property
    def extent(self) -> tuple[int, int]:
        """(width, height) of the photo: its size, or else as far as the boxes reach; zeros where there are none."""
        if all(self.size) or self.boxes is None:
            return self.size
        width, height = np.ceil(self.boxes[:, 2:].max(0)).clip(1).tolist()
        return int(width), int(height)


def _pack(features: ImageFeatures, dtype: np.dtype) -> bytes:
    """An entry: the header, then boxes, scores, labels, attributes and vectors, as far as there are any."""
    regions, size = features.vectors.shape
    flags = _HALF if dtype.itemsize == 2 else 0
    arrays: list[np.ndarray] = []
    for flag, array, kind in (
        (_BOXES, features.boxes, "<f4"),
        (_SCORES, features.scores, "<f4"),
        (_LABELS, features.labels, "<i4"),
        (_ATTRIBUTES, features.attributes, "<i4"),
    ):
        if array is not None:
            assert len(array) == regions, "one for each region"
            flags |= flag
            arrays.append(array.astype(kind))
    arrays.append(features.vectors.astype(dtype, copy=False))
    body = b"".join(
        [_HEADER.pack(b"", 0, regions, size, *features.size, flags, 0)[8:], *map(np.ndarray.tobytes, arrays)]
    )
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def _unpack(value: memoryview, info: StoreInfo) -> ImageFeatures:
    """Views of the arrays in an entry.

    Raises:
        ValueError: it is damaged, or no entry of a store with such metadata.
    """
    if len(value) < _HEADER.size:
        raise ValueError(f"it has {len(value)} bytes, fewer than its header")
    magic, _, regions, size, width, height, flags, _ = _HEADER.unpack_from(value)
    if magic != _MAGIC:
        raise ValueError("it does not begin as an entry does")
    if not regions or size != info.feature_size:
        raise ValueError(f"it has {regions} vectors of {size} numbers, in a store of {info.feature_size}")
    if flags & ~_ALL_FLAGS or bool(flags & _HALF) != (info.dtype == "fp16"):
        raise ValueError("its header contradicts the store's metadata")
    shapes = [
        (np.dtype("<f4"), (regions, 4), flags & _BOXES),
        (np.dtype("<f4"), (regions,), flags & _SCORES),
        (np.dtype("<i4"), (regions,), flags & _LABELS),
        (np.dtype("<i4"), (regions,), flags & _ATTRIBUTES),
        (DTYPES["fp16" if flags & _HALF else "fp32"], (regions, size), True),
    ]
    length = _HEADER.size + sum(dtype.itemsize * math.prod(shape) for dtype, shape, is_there in shapes if is_there)
    if len(value) != length:
        raise ValueError(f"it has {len(value)} bytes instead of {length}")
    arrays: list[np.ndarray | None] = []
    offset = _HEADER.size
    for dtype, shape, is_there in shapes:
        count = math.prod(shape)
        arrays.append(np.frombuffer(value, dtype, count, offset).reshape(shape) if is_there else None)
        offset += dtype.itemsize * count if is_there else 0
    *described, vectors = arrays
    assert vectors is not None
    return ImageFeatures(vectors, (width, height), *described)


class _Mapping:
    """A store's file, mapped for reading: once in each process, whatever the number of `FeatureStore`s."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()  # a transaction belongs to one thread at a time
        self._process = os.getpid()
        if not (self._path / "data.mdb").is_file():
            raise DataError(
                f"There is no feature store {self._path}; write one with: showtell features DATASET --encoder NAME "
                f"--out {self._path}, or from features of other tools: showtell features --from PATH --out "
                f"{self._path}"
            )
        with self._damage():
            self._environment = lmdb.open(str(self._path), readonly=True, lock=False, readahead=False, create=False)
            end = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
            if (self._path / "data.mdb").stat().st_size < end:  # reading behind its end would kill the process
                raise lmdb.CorruptedError("the end of its file is missing")
            self._transaction = self._environment.begin(buffers=True)

    def get(self, key: bytes) -> memoryview | None:
        """The bytes of an entry, in place."""
        if self._process != os.getpid():  # forked: the parent's environment is not for us
            self._environment.close()
            self._open()
        with self._lock, self._damage():
            return self._transaction.get(key)

    def keys(self) -> Iterator[bytes]:
        """All keys, in the order of their bytes."""
        with self._lock, self._damage():
            keys = [bytes(key) for key in self._transaction.cursor().iternext(values=False)]
        yield from keys

    def __len__(self) -> int:
        with self._lock, self._damage():
            return int(self._transaction.stat()["entries"])

    @contextmanager
    def _damage(self) -> Iterator[None]:
        """Errors of LMDB as a sentence.

        Raises:
            DataError: in place of them.
        """
        try:
            yield
        except lmdb.Error as error:
            raise DataError(
                f"{self._path} is not a feature store, or a damaged one ({_reason(error, self._path)}); delete it and "
                "extract anew."
            ) from error


_open_mappings: weakref.WeakValueDictionary[str, _Mapping] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _mapping(path: Path) -> _Mapping:
    """LMDB must not open one file twice in a process."""
    with _opening:
        name = str(path.resolve())
        mapping = _open_mappings.get(name)
        if mapping is None:
            mapping = _open_mappings[name] = _Mapping(path)
        return mapping


class FeatureStore:
    """Features on disk by image id. Safe in threads, after a fork, and sent to another process (which opens it anew).

    Args:
        path: the folder that `showtell features` wrote.

    Raises:
        DataError: it is missing, damaged, or of a newer format.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._mapping = _mapping(self.path)
        self.info = _read_info(self._mapping.get(METADATA), self.path)
        self._checked: set[str] = set()

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path]]:
        return FeatureStore, (self.path,)

    def __len__(self) -> int:
        return len(self._mapping) - 1

    def __contains__(self, image_id: str) -> bool:
        return _is_key(image_id) and self._mapping.get(_encoded(image_id)) is not None

    @property
    def bytes(self) -> int:
        """What it takes on disk."""
        return (self.path / "data.mdb").stat().st_size

    def ids(self) -> list[str]:
        """The images that it has, in the order of their bytes."""
        keys = self._mapping.keys()
        return [key.decode("utf-8", "surrogateescape") for key in keys if key != METADATA]

    def missing(self, image_ids: Sequence[str]) -> list[str]:
        """Those of the images that it does not have."""
        return [image_id for image_id in image_ids if image_id not in self]

    def __getitem__(self, image_id: str) -> ImageFeatures:
        """The features of an image, without a copy: they are good for as long as the store is open.

        An entry is held against its checksum the first time that a process reads it.

        Raises:
            DataError: the store does not have it, or it is damaged.
        """
        value = self._mapping.get(_encoded(image_id)) if _is_key(image_id) else None
        if value is None:
            raise DataError(f"{self.path} has no features of image {image_id}; add them with showtell features.")
        try:
            features = _unpack(value, self.info)
            if image_id not in self._checked:
                if zlib.crc32(value[8:]) != int.from_bytes(value[4:8], "little"):
                    raise ValueError("its checksum is another")
                self._checked.add(image_id)
        except ValueError as error:
            raise DataError(
                f"The features of image {image_id} in {self.path} are damaged: {error}; delete the store and extract "
                "anew."
            ) from error
        return features

    def require(self, encoder: Encoder) -> None:
        """Make sure that the features are those of the encoder that a model looks through.

        Raises:
            DataError: they are of another; both are named.
        """
        _same_encoder(self.info, StoreInfo.of(encoder, self.info.dtype), self.path)


@dataclass(frozen=True)
class StoredImage:
    """An image whose features are in a store: where a photo is captioned, it can stand for one."""

    store: FeatureStore
    image_id: str
    path: Path | None = None  # of the photo, where it is at hand

    def __str__(self) -> str:
        return self.image_id if self.path is None else str(self.path)

    def read(self) -> ImageFeatures:
        """Its features.

        Raises:
            DataError: the store lacks the image, or is damaged.
        """
        return self.store[self.image_id]


def _same_encoder(stored: StoreInfo, wanted: StoreInfo, path: Path) -> None:
    if stored.fingerprint == wanted.fingerprint:
        return
    differing = [
        f"{key} {old!r} instead of {new!r}" for key, (old, new) in differences(stored.encoder, wanted.encoder).items()
    ]
    if stored.encoder.get("name") != wanted.encoder.get("name"):
        why = ""
    elif differing:
        why = f": {', '.join(differing)}"
    else:
        why = ": the settings are the same and the weights are not (random ones are the same with the same seed)"
    raise DataError(
        f"The features in {path} are of {stored.made_by}, not of {wanted.made_by}{why}; use the encoder that made "
        "them, or another store."
    )


def _is_key(image_id: str) -> bool:
    try:
        return bool(image_id) and "\0" not in image_id and len(_encoded(image_id)) <= LONGEST_KEY
    except UnicodeEncodeError:
        return False


def _encoded(image_id: str) -> bytes:
    """An id as bytes: UTF-8, and what a file name that is not UTF-8 has in its place."""
    return image_id.encode("utf-8", "surrogateescape")


def _read_info(value: memoryview | bytes | None, path: Path) -> StoreInfo:
    if value is None:
        raise DataError(f"{path} is an LMDB database, and no feature store: it has no entry {METADATA!r}.")
    try:
        content = parse_json(bytes(value).decode(), "the metadata")
        number = content.get("format", FORMAT)
        if type(number) is not int or number < 1:
            raise ValueError(f"no format: {number!r}")
        if number <= FORMAT:
            return StoreInfo.model_validate(content)
    except (ValueError, AttributeError, KeyError, TypeError, DataError) as error:  # pydantic's is a ValueError
        raise DataError(
            f"The feature store {path} is damaged: its metadata cannot be read; delete it and extract anew."
        ) from error
    raise DataError(
        f"{path} was written by a newer showtell, in format {number}; this one reads formats up to {FORMAT}: install "
        "the newer one."
    )


class StoreWriter:
    """Adds images to a store. One program at a time; what was committed survives any kill.

    Args:
        path: the folder of the store; made if it is not there.
        info: what the features are; a store that is there must hold the same.

    Raises:
        DataError: the store has features of another encoder or precision, another program writes to it, or it cannot
            be written.
    """

    def __init__(self, path: Path | str, info: StoreInfo) -> None:
        self.path = Path(path)
        self.info = info
        self._dtype = DTYPES[info.dtype]
        if self.path.is_file():
            raise DataError(f"{self.path} is a file; a feature store is a folder: choose another name.")
        if self.path.is_dir() and not (self.path / "data.mdb").exists():
            others = [entry.name for entry in self.path.iterdir() if entry.name != _LOCK]
            if others:
                raise DataError(
                    f"{self.path} holds other files ({summarise(sorted(others), 3)}) and no feature store; choose a "
                    "new or an empty folder."
                )
        if str(self.path.resolve()) in _open_mappings:
            raise DataError(f"{self.path} is open for reading in this program: let go of its FeatureStore first.")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = filelock.FileLock(self.path / _LOCK, timeout=0)
            self._lock.acquire()
        except filelock.Timeout as error:
            raise DataError(f"Another program is writing to {self.path}; wait for it, or end it.") from error
        except OSError as error:
            raise DataError(f"Cannot write {self.path}: {error.strerror or error}.") from error
        try:
            _remove_unfinished(self.path / "data.mdb")
            self._environment = lmdb.open(str(self.path), map_size=_FIRST_MAP, lock=False, readahead=False)
            self._agree()
        except lmdb.Error as error:
            self._lock.release()
            raise DataError(f"Cannot write {self.path}: {_reason(error, self.path)}.") from error
        except DataError:
            self.close()
            raise

    def _agree(self) -> None:
        """Write the metadata, or hold ours against what is there."""
        with self._environment.begin() as transaction:
            metadata = transaction.get(METADATA)
            entries = transaction.stat()["entries"]
        if metadata is None and entries == 0:
            content = self.info.model_dump_json()
            self._commit([(METADATA, content.encode())])
            return
        stored = _read_info(metadata, self.path)
        _same_encoder(stored, self.info, self.path)
        if stored.dtype != self.info.dtype:
            raise DataError(
                f"The features in {self.path} are {stored.dtype}, not {self.info.dtype}: use {stored.dtype}, or "
                "write another store."
            )

    def __contains__(self, image_id: str) -> bool:
        with self._environment.begin(buffers=True) as transaction:
            return transaction.get(_key(image_id)) is not None

    def write(self, features: Mapping[str, ImageFeatures]) -> None:
        """Add images, or replace them, in one transaction: all are kept, or none.

        Raises:
            DataError: a value does not fit the precision, an id cannot be a key, or the disk is full; what was
                written before is kept.
        """
        entries = []
        for image_id, one in features.items():
            if not len(one.vectors):
                raise DataError(f"There are no features of image {image_id}: an image has one vector or more.")
            if one.vectors.shape[1] != self.info.feature_size:
                raise DataError(
                    f"The features of image {image_id} have {one.vectors.shape[1]} numbers each; those in {self.path} "
                    f"have {self.info.feature_size}."
                )
            with np.errstate(over="ignore"):  # looked for below
                narrow = one.vectors.astype(self._dtype, copy=False)
            if not np.isfinite(narrow).all():
                is_finite = np.isfinite(one.vectors).all()
                problem = "beyond 65,504, the most that fp16 can hold: use fp32" if is_finite else "that are no numbers"
                raise DataError(f"The features of image {image_id} hold values {problem}.")
            packed = _pack(dataclasses.replace(one, vectors=narrow), self._dtype)
            entries.append((_key(image_id), packed))
        self._commit(entries)

    def _commit(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in entries:
                        transaction.put(key, value)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
            except lmdb.Error as error:
                raise DataError(
                    f"Cannot write {self.path}: {_reason(error, self.path)}; what was written before is kept: "
                    "run the same command again to resume."
                ) from error

    def close(self) -> None:
        """Let others write."""
        self._environment.close()
        self._lock.release()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _key(image_id: str) -> bytes:
    if not _is_key(image_id):
        raise DataError(
            f"The image id {image_id[:60]!r} cannot be stored: an id has 1 to {LONGEST_KEY} bytes and no null byte."
        )
    return _encoded(image_id)


def _remove_unfinished(file: Path) -> None:
    """Delete what is left of a database whose first two pages were never written, such as on a full disk."""
    if not file.exists() or file.stat().st_size >= 2 * mmap.PAGESIZE:
        return
    content = file.read_bytes()
    if not any(content[:8]) and content[16:20] in (_LMDB_MAGIC, bytes(4), b""):  # else it is somebody else's
        file.unlink()


def _reason(error: lmdb.Error, path: Path) -> str:
    """What LMDB says, without its own name for the file."""
    if isinstance(error, lmdb.DiskError) or (path.exists() and shutil.disk_usage(path).free < _FULL):
        return "the disk is full"
    return str(error).removeprefix(f"{path}: ")


def collate_features(images: Sequence[ImageFeatures]) -> Features:
    """Several images as one record, padded to the most regions, in the precision of the store.

    Boxes, scores, labels and attributes are there if all of the images have them.
    """
    most = max(len(image.vectors) for image in images)
    is_region = torch.tensor([[row < len(image.vectors) for row in range(most)] for image in images])

    def pad(arrays: Sequence[np.ndarray], fill: int = 0) -> Tensor:
        first = arrays[0]
        padded = np.empty((len(arrays), most, *first.shape[1:]), first.dtype.newbyteorder("="))
        for index, array in enumerate(arrays):
            padded[index, : len(array)] = array
            padded[index, len(array) :] = fill
        return torch.from_numpy(padded)

    def of(name: str, fill: int = 0) -> Tensor | None:
        arrays = [getattr(image, name) for image in images]
        return None if any(array is None for array in arrays) else pad(arrays, fill)

    def indices(name: str) -> Tensor | None:
        stored = of(name, -1)
        return None if stored is None else stored.long()

    boxes = of("boxes")
    regions = None
    if boxes is not None:
        windows = torch.tensor([(0, 0, *image.extent) for image in images], dtype=torch.float32)
        regions = Regions(boxes, of("scores"), indices("labels"), windows, indices("attributes"))
    return Features(pad([image.vectors for image in images]), is_region, regions)
