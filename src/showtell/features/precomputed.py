"""Features that other tools extracted: the encoder `precomputed`, which stands for them, and how they come to a store.

They are converted from what the field has on disk, not read in place: one reader serves training, and a TSV has no
index (docs/features.md).

- bottom-up-attention: TSV with image_id, image_w, image_h, num_boxes, boxes, features; the last two base64.
- ImageCaptioning.pytorch: a folder of `{id}.npz` with `feat`, or of `{id}.npy`; of `x_att` with boxes from `x_box`.
- bottom-up-attention.pytorch: a folder of `{id}.npz` with `x`, `bbox`, `image_w`, `image_h`.

Files that are called as COCO's photos (`COCO_val2014_000000000042.npz`) are of the image with that number.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from showtell.errors import CheckpointError, DataError, first_line
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.store import ImageFeatures, Precision, StoreInfo, StoreWriter
from showtell.images.photo_files import coco_number
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

_IMAGES_AT_ONCE = 64  # of a transaction
_COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")  # of bottom-up-attention
_VECTORS, _BOXES = ("features", "feat", "x", "att"), ("boxes", "bbox", "box")  # their names in archives


class PrecomputedConfig(EncoderConfig):
    """Features that another program computed: only their size and where they come from is known."""

    name: Literal["precomputed"] = "precomputed"
    trained: Literal[False] = Field(False, description="Precomputed features are always frozen.")
    feature_size: int = Field(ge=1, le=2**20, description="Numbers of each feature vector.")
    source: str = Field(min_length=1, description="Where the features come from, for people: a file, project or URL.")


class Precomputed(Encoder):
    """Stands for the program that computed the features of a store."""

    config: PrecomputedConfig

    def __init__(self, config: PrecomputedConfig) -> None:
        super().__init__()
        self.config = config
        self.feature_size = config.feature_size
        self.preprocessing = Preprocessing(  # of no consequence: no photo gets further than `forward`
            image_size=224, resize="squash", interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
        )

    def forward(self, batch: PreparedBatch) -> Features:
        """Raise a CheckpointError that says what to do."""
        raise CheckpointError(
            f"This model was trained on features from {self.config.source}, which were computed elsewhere, so it "
            "cannot look at a photo: caption images whose features are in a store (--features STORE), train with an "
            "encoder of ours (encoder.name=bottom_up), which travels with the checkpoint, or, if this one was "
            "imported, import it again with the encoder of these features (--features-from ENCODER weights=FILE)."
        )

    def rectangles(self, features: Features, windows: Tensor) -> Tensor | None:
        """The boxes that came with the features; None where they came without."""
        return None if features.regions is None else features.regions.boxes


def convert(
    path: Path | str,
    out: Path | str,
    *,
    source: str,
    dtype: Precision = "fp16",
    progress: Callable[[int], None] = lambda done: None,
) -> int:
    """Put features of another tool, called `source`, into a store, those that it does not have, and count them."""
    images = read_foreign(Path(path))
    if (first := next(images, None)) is None:
        raise DataError(f"{path} holds no features.")
    encoder = Precomputed(PrecomputedConfig.checked({"feature_size": first[1].vectors.shape[1], "source": source}))
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


def read_foreign(path: Path) -> Iterator[tuple[str, ImageFeatures]]:
    """Image ids and features of another tool; a DataError that names file and image if no layout fits or one is bad."""
    if path.is_file() and path.suffix.lower() not in (".npy", ".npz", ".h5", ".hdf5"):
        return _from_tsv(path)
    files = sorted(path.iterdir()) if path.is_dir() else []
    if tables := [file for file in files if re.search(r"\.tsv(\.\d+)?$", file.name)]:
        return chain.from_iterable(map(_from_tsv, tables))
    if path.name.endswith("_box"):
        raise DataError(f"{path} holds boxes, not vectors; name the folder of vectors beside it, such as x_att.")
    if arrays := [file for file in files if file.suffix in (".npy", ".npz")]:
        return map(_from_array, arrays)
    raise DataError(
        f"{path} holds no features that are understood: a TSV of bottom-up-attention (or a folder of them), or a "
        "folder of {id}.npy or {id}.npz, as which other formats can be saved with NumPy."
    )


def _from_tsv(path: Path) -> Iterator[tuple[str, ImageFeatures]]:
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            where, cells = f"{path}, line {number}", line.rstrip(b"\r\n").split(b"\t")
            if cells == [b""]:
                continue
            if len(cells) != len(_COLUMNS):
                raise DataError(
                    f"{where} has {len(cells)} columns; bottom-up-attention writes {len(_COLUMNS)}, separated by tabs: "
                    f"{', '.join(_COLUMNS)}."
                )
            row = dict(zip(_COLUMNS, cells, strict=True))
            try:
                count = int(row["num_boxes"])
                boxes, vectors = (
                    np.frombuffer(base64.b64decode(row[name], validate=True), "<f4").reshape(count, width)
                    for name, width in (("boxes", 4), ("features", -1))
                )
                image_id, size = row["image_id"].decode(), (int(row["image_w"]), int(row["image_h"]))
            except ValueError as error:  # of base64 too
                raise DataError(f"{where} is damaged or no row of features: {error}.") from error
            yield image_id, _image(vectors, where, size, boxes)


def _from_array(file: Path) -> tuple[str, ImageFeatures]:
    """The features in an array of NumPy or an archive of arrays, with boxes from the folder beside it."""
    size = (0, 0)
    folder = str(file.parent.absolute())
    beside = Path(re.sub("_att$", "_box", folder), f"{file.stem}.npy")
    try:
        with file.open("rb") as stream:
            content: Any = np.load(stream, allow_pickle=False)
            content = {"features": content} if isinstance(content, np.ndarray) else content
            # other entries of an archive may hold anything, and are not opened
            vectors, boxes = (
                next((content[name] for name in names if name in content), None) for names in (_VECTORS, _BOXES)
            )
            if "image_w" in content:
                size = (int(content["image_w"]), int(content["image_h"]))
        if boxes is None and folder.endswith("_att") and beside.exists():
            boxes = np.load(beside, allow_pickle=False)
    except Exception as error:  # readers of damaged headers, archives and arrays raise anything
        is_pickle = "pickle" in str(error)  # NumPy's own words about Python objects advise to load them anyway
        reason = "it is damaged or holds Python objects" if is_pickle else first_line(error)
        raise DataError(f"{file} cannot be read as an array of numbers: {reason}.") from error
    if vectors is None:
        raise DataError(f"{file} has no vectors: none of {', '.join(_VECTORS)} is in it.")
    return coco_number(file.stem) or file.stem, _image(vectors, str(file), size, boxes)


def _image(vectors: np.ndarray, where: str, size: tuple[int, int], boxes: np.ndarray | None) -> ImageFeatures:
    """An entry: a pooled vector (D,), regions (R, D), or a map (rows, columns, D)."""
    if vectors.dtype.kind != "f" or not 1 <= vectors.ndim <= 3 or vectors.size == 0:
        raise DataError(
            f"{where} has an array of {vectors.dtype} and shape {vectors.shape}; features are floats of shape (D,), "
            "(R, D) or (rows, columns, D)."
        )
    flat = vectors.reshape(-1, vectors.shape[-1])
    shape = (len(flat), 4)
    if boxes is not None and (boxes.shape != shape or boxes.dtype.kind not in "fiu" or not np.isfinite(boxes).all()):
        raise DataError(
            f"{where} has boxes of {boxes.dtype} and shape {boxes.shape} for {len(flat)} vectors; they should be "
            f"finite numbers of shape {shape}."
        )
    return ImageFeatures(flat, size, boxes)
