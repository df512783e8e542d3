"""The feature store: one LMDB database with an entry per image, memory-mapped, half or single precision.

    with StoreWriter(path, about) as writer:
        writer.write({"42": ImageFeatures(vectors, size=(640, 480))})     # one transaction: all of them or none
    store = FeatureStore(path)
    features = collate_features([store["42"], store["43"]])               # Features of 2 images, padded

An entry is a checksum and the arrays of an image as safetensors has them; metadata is one more entry, under a key that
no image can have. Nothing depends on when it was written, so that two stores of the same features are equal byte for
byte, key by key.
"""

from __future__ import annotations

import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import lmdb
import numpy as np
import safetensors.numpy as safetensors
import torch
from pydantic import Field
from torch import Tensor

from showtell.config import Config, differences
from showtell.errors import DataError, summarise
from showtell.features.contract import Encoder, EncoderConfig
from showtell.images.preprocessing import Preprocessing
from showtell.processes import LOCK_NAME, lock_folder
from showtell.types import Features, Regions, precision_name

FORMAT = 3  # raised when the layout changes
METADATA = b"\0showtell"  # no file name and no number begins with a null byte
LONGEST_KEY = 511  # bytes, LMDB's limit
_FIRST_MAP = 64 * 2**20  # bytes of address space; doubled whenever it is full
_CHECKSUM = 8  # bytes before an entry: the CRC-32 of the rest

Precision = Literal["fp16", "fp32"]
_DTYPES = {"fp16": "<f2", "fp32": "<f4"}
_ARRAYS = {"boxes": "<f4", "scores": "<f4", "labels": "<i4", "attributes": "<i4", "size": "<i8"}  # beside the vectors


class StoreInfo(Config):
    """The metadata of a store."""

    format: int = Field(FORMAT, description="Version of the layout.")
    encoder: dict[str, Any] = Field(description="Settings of the encoder, without those of where its weights are from.")
    fingerprint: str = Field(description="Hash of the encoder's settings, preprocessing and weights.")
    preprocessing: Preprocessing | None = Field(
        None, description="How photos were prepared; not set for features of other tools."
    )
    dtype: Precision = Field(description="Precision of the stored numbers.")
    feature_size: int = Field(ge=1, le=2**20, description="Numbers of a vector, D.")
    categories: tuple[str, ...] = Field((), description="Names that the labels of regions are indices into.")
    attributes: tuple[str, ...] = Field((), description="Names that the attributes of regions are indices into.")

    @property
    def made_by(self) -> str:
        """The encoder for a message: its name and its fingerprint."""
        return f"{self.encoder.get('name')} (fingerprint {self.fingerprint})"

    @classmethod
    def of(cls, encoder: Encoder, dtype: str | torch.dtype) -> StoreInfo:
        """The description of features that an encoder computes."""
        return cls(
            encoder=encoder.config.feature_settings(), fingerprint=encoder.fingerprint(),
            preprocessing=encoder.preprocessing, dtype=cast(Precision, precision_name(dtype)),
            feature_size=encoder.feature_size, categories=encoder.categories, attributes=encoder.attributes,
        )  # fmt: skip

    def require(self, path: Path, settings: Mapping[str, Any], fingerprint: str | None = None) -> None:
        """Raise a DataError with what differs if a store is not of an encoder with these settings and fingerprint."""
        changed = differences(self.encoder, settings).items()
        why = ", ".join(f"{key} {old!r} instead of {new!r}" for key, (old, new) in changed)
        if not why and fingerprint not in (None, self.fingerprint):
            why = (
                f"the settings are the same and the weights are not (fingerprint {fingerprint}; random ones are the "
                "same with the same seed)"
            )
        if why:
            raise DataError(
                f"The features in {path} are of {self.made_by}, not of {settings.get('name')}: {why}; use the encoder "
                "that made them, or another store (data.features=stores/ names it by dataset and encoder)."
            )


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """The features of one image."""

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


@dataclass(frozen=True)
class StoredImage:
    """An image whose features are in a store: where a photo is captioned, it can stand for one."""

    store: FeatureStore
    image_id: str
    path: Path | None = None  # of the photo, where it is at hand

    def __str__(self) -> str:
        return self.image_id if self.path is None else str(self.path)

    def read(self) -> ImageFeatures:
        """Its features; raises as `FeatureStore.__getitem__` does."""
        return self.store[self.image_id]


def _pack(image_id: str, features: ImageFeatures, info: StoreInfo) -> bytes:
    vectors = features.vectors
    if not len(vectors) or vectors.shape[1] != info.feature_size:
        wanted = f"(R, {info.feature_size}), with one vector or more"
        raise DataError(f"The features of image {image_id} have the shape {vectors.shape}; this store has {wanted}.")
    with np.errstate(over="ignore"):  # looked for below
        arrays = {"vectors": vectors.astype(_DTYPES[info.dtype])}
    if not np.isfinite(arrays["vectors"]).all():
        is_finite = np.isfinite(vectors).all()
        problem = "beyond 65,504, the most that fp16 can hold: use fp32" if is_finite else "that are no numbers"
        raise DataError(f"The features of image {image_id} hold values {problem}.")
    for name, dtype in _ARRAYS.items():
        if (array := getattr(features, name)) is not None:
            arrays[name] = np.asarray(array, dtype)
    body = safetensors.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    return zlib.crc32(body).to_bytes(_CHECKSUM, "little") + body


def _unpack(value: memoryview) -> ImageFeatures:
    """The arrays in an entry, whose checksum was compared."""
    arrays: dict[str, Any] = safetensors.load(bytes(value[_CHECKSUM:]))
    width, height = arrays.pop("size").tolist()
    return ImageFeatures(size=(width, height), **arrays)


def _is_whole(value: memoryview) -> bool:
    return len(value) > _CHECKSUM + 8 and zlib.crc32(value[_CHECKSUM:]) == int.from_bytes(value[:_CHECKSUM], "little")


def _key(image_id: str) -> bytes | None:
    """An id as bytes, a file name that is not UTF-8 by its own; None for what cannot be a key."""
    try:
        key = image_id.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return key if 0 < len(key) <= LONGEST_KEY and b"\0" not in key else None


_opened: weakref.WeakValueDictionary[Path, lmdb.Environment] = weakref.WeakValueDictionary()  # for reading
_opening = threading.Lock()


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Turn errors of LMDB into a DataError."""
    try:
        yield
    except lmdb.MapResizedError as error:
        raise DataError(f"{path} is being filled by another program; wait until it has ended.") from error
    except lmdb.Error as error:
        why = str(error).removeprefix(f"{path}: ")
        raise DataError(
            f"{path} is not a feature store, or a damaged one ({why}); delete it and extract anew."
        ) from error


def _open(path: Path, **options: Any) -> lmdb.Environment:
    """Open a database whose file is whole: to read behind its end would kill the process."""
    environment = lmdb.open(str(path), lock=False, readahead=False, **options)
    end = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    if (path / "data.mdb").stat().st_size < end and environment.stat()["entries"]:
        environment.close()
        raise lmdb.CorruptedError("the end of its file is missing")
    return environment


def _read_info(value: bytes | memoryview | None, path: Path) -> StoreInfo:
    if value is None:
        raise DataError(f"{path} is an LMDB database, and no feature store: it has no entry {METADATA!r}.")
    try:
        info = StoreInfo.model_validate_json(bytes(value))
        problem = None if info.format == FORMAT else f"of another version of showtell (format {info.format})"
    except ValueError:
        problem = "damaged: its metadata cannot be read"
    if problem:
        raise DataError(f"The feature store {path} is {problem}; delete it and extract anew.")
    return info


class FeatureStore:
    """Features on disk by image id. Safe in threads, after a fork, and sent to another process (which opens it anew).

    `path` is the folder that `showtell features` wrote; a DataError if it is missing, damaged, or of another format.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not (self.path / "data.mdb").is_file():
            raise DataError(
                f"There is no feature store {self.path}; write one with: showtell features DATASET --encoder NAME "
                f"--out {self.path}, or from features of other tools: showtell features --from PATH --out {self.path}"
            )
        folder = self.path.resolve()
        with _opening, _translate_errors(self.path):  # LMDB opens a file once in a process, and `_opened` shares it
            self._environment = _opened.get(folder) or _open(self.path, readonly=True, create=False)
            _opened[folder] = self._environment
        self.info = _read_info(self._get(METADATA), self.path)
        self._checked: set[str] = set()

    def __reduce__(self) -> tuple[type[FeatureStore], tuple[Path]]:
        return FeatureStore, (self.path,)

    def _get(self, key: bytes | None) -> memoryview | None:
        """The bytes of an entry, in place: without locks and writers they stay when the transaction ends."""
        if key is None:
            return None
        with _translate_errors(self.path), self._environment.begin(buffers=True) as transaction:
            return transaction.get(key)

    def __len__(self) -> int:
        with _translate_errors(self.path), self._environment.begin() as transaction:
            return int(transaction.stat()["entries"]) - 1

    def __contains__(self, image_id: str) -> bool:
        return self._get(_key(image_id)) is not None

    def ids(self) -> list[str]:
        """The images that it has, in the order of their bytes."""
        with _translate_errors(self.path), self._environment.begin() as transaction:
            keys = list(transaction.cursor().iternext(values=False))
        return [key.decode("utf-8", "surrogateescape") for key in keys if key != METADATA]

    def missing(self, image_ids: Sequence[str]) -> list[str]:
        """Those of the images that it does not have."""
        return [image_id for image_id in image_ids if image_id not in self]

    def __getitem__(self, image_id: str) -> ImageFeatures:
        """The features of an image, compared with their checksum when first read; a DataError if missing or damaged."""
        if (value := self._get(_key(image_id))) is None:
            raise DataError(f"{self.path} has no features of image {image_id}; add them with showtell features.")
        if image_id not in self._checked:
            if not _is_whole(value):
                raise DataError(
                    f"The features of image {image_id} in {self.path} are damaged; the showtell features command that "
                    "wrote them repairs them."
                )
            self._checked.add(image_id)
        return _unpack(value)

    def require(self, encoder: Encoder) -> None:
        """Make sure that the features are of this encoder; raises as `StoreInfo.require` does."""
        self.info.require(self.path, encoder.config.feature_settings(), encoder.fingerprint())


def require_settings(path: Path | str, config: EncoderConfig) -> None:
    """Make sure, without weights, that a store is of an encoder with these settings, if there is one; see `require`."""
    if (Path(path) / "data.mdb").exists():
        FeatureStore(path).info.require(Path(path), config.feature_settings())


class StoreWriter(AbstractContextManager["StoreWriter"]):
    """Adds images to a store, a new one or one of the same `info`. What was committed survives any kill.

    A DataError if the store is damaged or of another encoder or precision, or another program writes to it.
    """

    def __init__(self, path: Path | str, info: StoreInfo) -> None:
        self.path, self.info = Path(path), info
        if self.path.resolve() in _opened:
            raise DataError(f"{self.path} is open for reading in this program: let go of its FeatureStore first.")
        with ExitStack() as opened:  # closed at once if any of this fails
            opened.enter_context(lock_folder(self.path, "writing to", "another store"))
            others = sorted(entry.name for entry in self.path.iterdir() if entry.name != LOCK_NAME)
            if others and "data.mdb" not in others:
                raise DataError(
                    f"{self.path} holds other files ({summarise(others, 3)}) and no feature store; choose a new or an "
                    "empty folder."
                )
            with _translate_errors(self.path):
                self._environment = _open(self.path, map_size=_FIRST_MAP)
                opened.callback(self._environment.close)
                self._agree()
            self._opened = opened.pop_all()

    def _agree(self) -> None:
        """Write the metadata, or compare ours with what is there."""
        with self._environment.begin() as transaction:
            metadata = transaction.get(METADATA)
            is_new = metadata is None and transaction.stat()["entries"] == 0
        if is_new:
            self._commit([(METADATA, self.info.model_dump_json().encode())])
            return
        stored = _read_info(metadata, self.path)
        stored.require(self.path, self.info.encoder, self.info.fingerprint)
        if stored.dtype != self.info.dtype:
            raise DataError(
                f"The features in {self.path} are {stored.dtype}, not {self.info.dtype}: use {stored.dtype}, or "
                "write another store."
            )

    def __contains__(self, image_id: str) -> bool:
        """Whether an image is there and its entry fits its checksum."""
        key = _key(image_id)
        with _translate_errors(self.path), self._environment.begin(buffers=True) as transaction:
            value = None if key is None else transaction.get(key)
            return value is not None and _is_whole(value)

    def write(self, features: Mapping[str, ImageFeatures]) -> None:
        """Add or replace images in one transaction; a DataError (a value, an id, a full disk) keeps what was there."""
        entries = []
        for image_id, image in features.items():
            if (key := _key(image_id)) is None:
                name = f"The image id {image_id[:60]!r}"
                raise DataError(f"{name} cannot be stored: an id has 1 to {LONGEST_KEY} bytes and no null byte.")
            entries.append((key, _pack(image_id, image, self.info)))
        self._commit(entries)

    def _commit(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    transaction.cursor().putmulti(entries)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
            except lmdb.Error as error:
                reason = "the disk is full" if isinstance(error, lmdb.DiskError) else error
                raise DataError(
                    f"Cannot write {self.path}: {reason}; what was written before is kept: run the same command again "
                    "to resume."
                ) from error

    def __exit__(self, *error: object) -> None:
        self._opened.close()


def collate_features(images: Sequence[ImageFeatures], multiple: int = 1) -> Features:
    """Several images as one record, padded to the most regions, in the precision of the store.

    Where images differ in their number of regions, they are padded to a multiple.

    Boxes, scores, labels and attributes are there if all of the images have them.
    """
    numbers = {len(image.vectors) for image in images}
    most = max(numbers) + (-max(numbers) % multiple if len(numbers) > 1 else 0)

    def padded(name: str, fill: int = 0) -> Tensor | None:
        arrays = [getattr(image, name) for image in images]
        if any(array is None for array in arrays):
            return None
        result = np.full((len(arrays), most, *arrays[0].shape[1:]), fill, arrays[0].dtype)
        for index, array in enumerate(arrays):
            result[index, : len(array)] = array
        tensor = torch.from_numpy(result)
        return tensor.long() if tensor.dtype == torch.int32 else tensor

    vectors, boxes, regions = padded("vectors"), padded("boxes"), None
    assert vectors is not None
    if boxes is not None:
        windows = torch.tensor([(0, 0, *image.extent) for image in images], dtype=torch.float32)
        regions = Regions(boxes, padded("scores"), padded("labels", -1), windows, padded("attributes", -1))
    is_region = torch.tensor([[row < len(image.vectors) for row in range(most)] for image in images])
    return Features(vectors, is_region, regions)
