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
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from showtell.errors import DataError, MissingDependencyError, first_line, summarise
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import ImageFeatures, Precision, StoreInfo, StoreWriter

_IMAGES_AT_ONCE = 64  # of a transaction
_COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),  # bottom-up-attention
    10: (  # LXMERT
        "image_id", "image_h", "image_w", "labels", "scores", "attrs_id", "attrs_conf", "num_boxes", "boxes",
        "features",
    ),
}  # fmt: skip
_VECTORS = ("features", "feat", "x", "att")  # what vectors are called in archives and groups
_BOXES = ("boxes", "bbox", "box")
_HDF5 = {".h5", ".hdf5", ".hdf"}

Named = tuple[str, ImageFeatures]


def convert(
    path: Path | str,
    out: Path | str,
    *,
    source: str,
    dtype: Precision = "fp16",
    progress: Callable[[int], None] = lambda done: None,
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
        for image_id, features in chain([first], images):
            progress(1)
            if image_id not in waiting and image_id not in writer:  # the released files have some images twice
                waiting[image_id] = features
            if len(waiting) == _IMAGES_AT_ONCE:
                writer.write(waiting)
                added += len(waiting)
                waiting = {}
        writer.write(waiting)
    return added + len(waiting)


def read_foreign(path: Path) -> Iterator[Named]:
    """Image ids and features in a file or folder of another tool.

    Raises:
        DataError: no layout fits, or something is damaged; the message names the file and the image.
    """
    if path.is_file() and path.suffix.lower() in _HDF5:
        return _from_hdf5(path)
    if path.is_file() and path.suffix.lower() not in (".npy", ".npz"):
        return _from_tsv(path)
    files = sorted(path.iterdir()) if path.is_dir() else []
    if tables := [file for file in files if re.search(r"\.tsv(\.\d+)?$", file.name)]:
        return chain.from_iterable(map(_from_tsv, tables))
    if path.name.endswith("_box"):
        raise DataError(f"{path} holds boxes, not vectors; name the folder of vectors beside it, such as x_att.")
    if arrays := [file for file in files if file.suffix in (".npy", ".npz")]:
        return map(_from_array, arrays)
    raise DataError(
        f"{path} holds no features that are understood: a TSV of bottom-up-attention (or a folder of them), a folder "
        "of {id}.npy or {id}.npz, or an HDF5 file (.h5, .hdf5)."
    )


def _from_tsv(path: Path) -> Iterator[Named]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            where, cells = f"{path}, line {number}", line.rstrip(b"\r\n").split(b"\t")
            if cells == [b""]:
                continue
            if len(cells) not in _COLUMNS:
                raise DataError(
                    f"{where} has {len(cells)} columns; bottom-up-attention writes 6 and LXMERT 10, parted by tabs."
                )
            row = dict(zip(_COLUMNS[len(cells)], cells, strict=True))
            try:
                count = int(row["num_boxes"])
                arrays = {
                    name: np.frombuffer(base64.b64decode(row[name], validate=True), dtype)
                    for name, dtype in (("features", "<f4"), ("boxes", "<f4"), ("scores", "<f4"), ("labels", "<i8"))
                    if name in row
                }
                vectors, arrays["boxes"] = arrays.pop("features").reshape(count, -1), arrays["boxes"].reshape(count, 4)
                image_id, size = row["image_id"].decode(), (int(row["image_w"]), int(row["image_h"]))
            except ValueError as error:  # of base64 too
                raise DataError(f"{where} is damaged or no row of features: {error}.") from error
            yield image_id, _image(vectors, where, size, **arrays)


def _from_array(file: Path) -> Named:
    """The features in an array of NumPy or an archive of arrays, with boxes from the folder beside it."""
    size = (0, 0)
    beside = file.parent.with_name(re.sub(r"_(att|fc)$", "_box", file.parent.name)) / f"{file.stem}.npy"
    try:
        with file.open("rb") as stream:
            loaded: Any = np.load(stream, allow_pickle=False)
            content = {"features": loaded} if isinstance(loaded, np.ndarray) else _known(loaded)
            if "image_w" in content:
                size = (int(content["image_w"]), int(content["image_h"]))
        boxes = _first(content, _BOXES)
        if boxes is None and beside.parent != file.parent and beside.exists():
            boxes = np.load(beside, allow_pickle=False)
    except Exception as error:  # readers of damaged headers, archives and arrays raise anything
        is_pickle = "pickle" in str(error)  # NumPy's own words about Python objects advise to load them anyway
        reason = "it is damaged or holds Python objects" if is_pickle else first_line(error)
        raise DataError(f"{file} cannot be read as an array of numbers: {reason}.") from error
    return file.stem, _image(_vectors(content, str(file)), str(file), size, boxes)


def _from_hdf5(path: Path) -> Iterator[Named]:
    try:
        import h5py
    except ImportError as error:
        raise MissingDependencyError(
            'Reading HDF5 needs h5py; install it with: pip install "showtell[hdf5]"'
        ) from error
    where = str(path)
    try:
        with h5py.File(path, "r") as file:
            if "image_features" in file:
                raise DataError(
                    f"{path} numbers its images by a pickle beside it, which is not opened here because a pickle can "
                    "run code; convert the TSV that it was made from."
                )
            for name in file:
                where = f"{path}, {name}"
                if name.endswith(("_boxes", "_cls_prob")):
                    continue
                image_id = name.removesuffix("_features")
                if isinstance(file[name], h5py.Group):
                    content = {key: item[()] for key, item in _known(file[name]).items()}
                else:
                    content = {"features": file[name][()]}
                    if image_id != name and f"{image_id}_boxes" in file:
                        content["boxes"] = file[f"{image_id}_boxes"][()]
                yield image_id, _image(_vectors(content, where), where, (0, 0), _first(content, _BOXES))
    except DataError:
        raise
    except Exception as error:  # h5py raises anything where a file is damaged
        raise DataError(f"{where} cannot be read as HDF5: {first_line(error)}.") from error


def _known(content: Mapping[str, Any]) -> dict[str, Any]:
    """Those entries of an archive or group whose names are known; others may hold anything."""
    return {key: content[key] for key in (*_VECTORS, *_BOXES, "image_w", "image_h") if key in content}


def _first(content: Mapping[str, Any], names: tuple[str, ...]) -> np.ndarray | None:
    return next((content[name] for name in names if name in content), None)


def _vectors(content: Mapping[str, Any], where: str) -> np.ndarray:
    vectors = _first(content, _VECTORS)
    if vectors is None:
        raise DataError(f"{where} has no vectors: none of {summarise(_VECTORS)} is in it.")
    return vectors


def _image(
    vectors: np.ndarray, where: str, size: tuple[int, int], boxes: np.ndarray | None = None, **others: np.ndarray
) -> ImageFeatures:
    """One entry: a pooled vector (D,), regions (R, D), or a map (rows, columns, D)."""
    if vectors.dtype.kind != "f" or not 1 <= vectors.ndim <= 3 or vectors.size == 0:
        raise DataError(
            f"{where} has an array of {vectors.dtype} and shape {vectors.shape}; features are floats of shape (D,), "
            "(R, D) or (rows, columns, D)."
        )
    flat = vectors.reshape(-1, vectors.shape[-1])
    for name, array in {"boxes": boxes, **others}.items():
        shape = (len(flat), 4) if name == "boxes" else (len(flat),)
        if array is not None and (
            array.shape != shape or array.dtype.kind not in "fiu" or not np.isfinite(array).all()
        ):
            raise DataError(
                f"{where} has {name} of {array.dtype} and shape {array.shape} for {len(flat)} vectors; they should be "
                f"finite numbers of shape {shape}."
            )
    return ImageFeatures(flat, size, boxes, **others)
