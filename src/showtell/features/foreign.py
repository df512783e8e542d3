"""Features that other tools extracted: read from what the field has on disk, and converted to a store.

They are converted, not read in place: one reader serves training, a TSV has no index, and HDF5 files and folders of a
hundred thousand archives are slower to read at random than a mapped file (docs/features.md).

- bottom-up-attention: TSV with image_id, image_w, image_h, num_boxes, boxes, features; the last two base64.
- LXMERT: TSV with img_id, img_h, img_w, objects_id, objects_conf, attrs_id, attrs_conf, num_boxes, boxes, features.
- ImageCaptioning.pytorch: a folder of `{id}.npz` with `feat`, or of `{id}.npy`; boxes in a folder beside it, `x_box`
  beside `x_att` or `x_fc`; or HDF5 with a dataset for each id.
- bottom-up-attention.pytorch: a folder of `{id}.npz` with `x`, `bbox`, `image_w`, `image_h`.
- meshed-memory-transformer: HDF5 with `{id}_features` and `{id}_boxes`.
- HDF5 with a group for each id that holds `features` and `boxes`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from showtell.errors import DataError, MissingDependencyError, summarise
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import ImageFeatures, Precision, StoreInfo, StoreWriter

_IMAGES_AT_ONCE = 64  # of a transaction
_MAX_ARRAY_BYTES = 2**30  # of an array of one image
_BOTTOM_UP = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
_LXMERT = (
    "img_id", "img_h", "img_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf", "num_boxes", "boxes",
    "features",
)  # fmt: skip
_VECTORS = ("features", "feat", "x", "att")  # what vectors are called in archives and groups
_BOXES = ("boxes", "bbox", "box")
_HDF5 = {".h5", ".hdf5", ".hdf"}


def convert(
    path: Path | str,
    out: Path | str,
    *,
    source: str,
    dtype: Precision = "fp16",
    progress: Callable[[int], None] | None = None,
) -> int:
    """Put features of another tool into a store, those that it does not have.

    Args:
        path: a file or folder in one of the layouts above.
        out: the store.
        source: what the features are called; a store of other features is refused.
        dtype: the precision in which they are kept.
        progress: called with the number of images done since the last call.

    Returns:
        How many images were added.

    Raises:
        DataError: nothing that is understood is there, something is damaged, or the store is of other features.
    """
    images = read_foreign(Path(path))
    first = next(images, None)
    if first is None:
        raise DataError(f"{path} holds no features.")
    encoder = Precomputed(PrecomputedConfig(feature_size=first[1].vectors.shape[1], source=source))
    added = 0
    with StoreWriter(out, StoreInfo.of(encoder, dtype)) as writer:
        waiting: dict[str, ImageFeatures] = {}
        for image_id, one in chain([first], images):
            if progress:
                progress(1)
            if image_id in waiting or image_id in writer:
                continue  # the released files have some images twice
            waiting[image_id] = one
            if len(waiting) == _IMAGES_AT_ONCE:
                writer.write(waiting)
                added += len(waiting)
                waiting = {}
        writer.write(waiting)
    return added + len(waiting)


def read_foreign(path: Path) -> Iterator[tuple[str, ImageFeatures]]:
    """Image ids and features in a file or folder of another tool.

    Raises:
        DataError: no layout fits, or something is damaged; the message names the file and the image.
    """
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    if path.is_file() and path.suffix.lower() in _HDF5:
        return _from_hdf5(path)
    if path.is_file() and path.suffix.lower() not in (".npy", ".npz"):
        return _from_tsv(path)
    if path.is_dir():
        tables = sorted(file for file in path.iterdir() if re.search(r"\.tsv(\.\d+)?$", file.name))
        if tables:
            return chain.from_iterable(map(_from_tsv, tables))
        files = sorted(file for file in path.iterdir() if file.suffix in (".npy", ".npz"))
        if files:
            return _from_arrays(path, files)
    raise DataError(
        f"{path} holds no features that are understood: a TSV of bottom-up-attention (or a folder of them), a folder "
        "of {id}.npy or {id}.npz, or an HDF5 file (.h5, .hdf5)."
    )


def _from_tsv(path: Path) -> Iterator[tuple[str, ImageFeatures]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            cells = line.rstrip(b"\r\n").split(b"\t")
            names = {len(_BOTTOM_UP): _BOTTOM_UP, len(_LXMERT): _LXMERT}.get(len(cells))
            if names is None:
                raise DataError(
                    f"{where} has {len(cells)} columns; bottom-up-attention writes {len(_BOTTOM_UP)} and LXMERT "
                    f"{len(_LXMERT)}, parted by tabs."
                )
            row = dict(zip(names, cells, strict=True))
            try:
                count = int(row["num_boxes"])
                width, height = (int(row.get(f"image_{side}") or row[f"img_{side}"]) for side in "wh")
                size = _size(width, height, where)
                boxes = _decoded(row["boxes"], "<f4").reshape(count, 4)
                vectors = _decoded(row["features"], "<f4").reshape(count, -1)
                scores = labels = None
                if names is _LXMERT:
                    scores, labels = _decoded(row["objects_conf"], "<f4"), _decoded(row["objects_id"], "<i8")
                image_id = (row.get("image_id") or row["img_id"]).decode()
            except (ValueError, binascii.Error) as error:
                raise DataError(f"{where} is damaged or no row of features: {error}.") from error
            yield image_id, _image(vectors, where, size, boxes, scores, labels)


def _decoded(cell: bytes, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(cell, validate=True), dtype)


def _from_arrays(folder: Path, files: list[Path]) -> Iterator[tuple[str, ImageFeatures]]:
    if folder.name.endswith("_box"):
        raise DataError(f"{folder} holds boxes, not vectors; name the folder of vectors beside it, such as x_att.")
    boxes_beside = folder.with_name(re.sub(r"_(att|fc)$", "_box", folder.name))
    for file in files:
        boxes, size = None, (0, 0)
        try:
            with file.open("rb") as stream:
                loaded: Any = np.load(stream, allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    vectors = loaded
                else:
                    vectors = _one_of(loaded, _VECTORS, file)
                    boxes = next((loaded[name] for name in _BOXES if name in loaded), None)
                    if "image_w" in loaded and "image_h" in loaded:
                        size = _size(loaded["image_w"], loaded["image_h"], str(file))
            beside = boxes_beside / f"{file.stem}.npy"
            if boxes is None and boxes_beside != folder and beside.exists():
                boxes = np.load(beside, allow_pickle=False)
        except DataError:
            raise
        except Exception as error:  # readers of damaged headers, archives and arrays raise anything
            raise DataError(f"{file} cannot be read as an array of numbers: {_reason(error)}.") from error
        yield file.stem, _image(vectors, str(file), size, boxes)


def _from_hdf5(path: Path) -> Iterator[tuple[str, ImageFeatures]]:
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            'Reading HDF5 needs h5py; install it with: pip install "showtell[hdf5]"'
        ) from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} cannot be read as HDF5: {error}.") from error
    with file:
        try:
            names = dict.fromkeys(map(str, file))  # in their order
        except Exception as error:  # h5py raises anything where the file is damaged
            raise DataError(f"{path} is damaged: {_reason(error)}.") from error
        if "image_features" in names:
            raise DataError(
                f"{path} numbers its images by a pickle beside it, which is not opened here because a pickle can run "
                "code; convert the TSV that it was made from."
            )
        for name in names:
            where = f"{path}, {name}"
            if name.endswith("_features"):
                image_id = name.removesuffix("_features")
                beside = f"{image_id}_boxes"
                boxes = _read_hdf5(file, beside, f"{path}, {beside}") if beside in names else None
                yield image_id, _image(_read_hdf5(file, name, where), where, (0, 0), boxes)
            elif not name.endswith(("_boxes", "_cls_prob")):
                entry = _read_hdf5(file, name, where)
                if isinstance(entry, dict):
                    boxes = next((entry[key] for key in _BOXES if key in entry), None)
                    yield name, _image(_one_of(entry, _VECTORS, where), where, (0, 0), boxes)
                else:
                    yield name, _image(entry, where, (0, 0))


def _read_hdf5(parent: Any, name: str, where: str) -> Any:
    """A dataset of HDF5 as an array, or of a group those datasets that are known by their names.

    Raises:
        DataError: it is damaged, or would be read from elsewhere: another file could be any file of this machine, whose
            bytes would end up in the store.
    """
    import h5py

    try:
        item = parent[name] if isinstance(parent.get(name, getlink=True), h5py.HardLink) else None
        if isinstance(item, h5py.Group) and parent.name == "/":
            return {key: _read_hdf5(item, key, f"{where}/{key}") for key in (*_VECTORS, *_BOXES) if key in item}
        if isinstance(item, h5py.Dataset) and not item.external and not item.is_virtual:
            if item.nbytes > _MAX_ARRAY_BYTES:
                raise DataError(f"{where} is an array of {item.nbytes / 2**30:,.1f} GB, too much for an image.")
            return item[()]
    except DataError:
        raise
    except Exception as error:  # h5py raises anything where the file is damaged
        raise DataError(f"{where} is damaged: {_reason(error)}.") from error
    raise DataError(
        f"{where} is a link, a nested group or in another file, which is not followed; write the numbers themselves "
        f"into {parent.file.filename}."
    )


def _one_of(content: Any, names: tuple[str, ...], where: object) -> np.ndarray:
    for name in names:
        if name in content:
            return np.asarray(content[name])
    others = f", but {summarise(content)}" if len(content) else ""
    raise DataError(f"{where} has no vectors: none of {', '.join(names)} is in it{others}.")


def _size(width: Any, height: Any, where: str) -> tuple[int, int]:
    """The width and height of a photo, as numbers that a store can hold."""
    try:
        size = (int(width), int(height))
    except (ValueError, TypeError, OverflowError):  # text, several numbers, infinity
        size = (0, 0)
    if not all(0 < side < 2**32 for side in size):
        raise DataError(f"{where} has a photo of {str(width)[:40]} x {str(height)[:40]} pixels, which is no size.")
    return size


def _reason(error: Exception) -> str:
    """What an error says of a damaged file, as the end of a sentence."""
    if isinstance(error, RecursionError | MemoryError):
        return "its header is no header of an array"
    if "pickle" in str(error):  # NumPy's own words about Python objects advise to load them anyway
        return "it is damaged or holds Python objects"
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _image(
    vectors: np.ndarray,
    where: str,
    size: tuple[int, int],
    boxes: np.ndarray | None = None,
    scores: np.ndarray | None = None,
    labels: np.ndarray | None = None,
) -> ImageFeatures:
    """One entry: a pooled vector (D,), regions (R, D), or a map (rows, columns, D)."""
    if (
        not isinstance(vectors, np.ndarray)
        or vectors.dtype.kind != "f"
        or not 1 <= vectors.ndim <= 3
        or vectors.size == 0
    ):
        raise DataError(
            f"{where} has an array of {vectors.dtype} and shape {vectors.shape}; features are floats of shape (D,), "
            "(R, D) or (rows, columns, D)."
        )
    flat = vectors.reshape(-1, vectors.shape[-1])
    for name, array, shape in (
        ("boxes", boxes, (len(flat), 4)),
        ("scores", scores, (len(flat),)),
        ("labels", labels, (len(flat),)),
    ):
        if array is None:
            continue
        if array.shape != shape:
            raise DataError(f"{where} has {name} of shape {array.shape} for {len(flat)} vectors; it should be {shape}.")
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all() or abs(array.astype("f8")).max() >= 2**31:
            raise DataError(f"{where} has {name} of {array.dtype} that are no numbers a store can hold.")
    return ImageFeatures(flat, size, boxes, scores, labels)
