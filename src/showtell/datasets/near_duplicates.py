"""Near copies: the same photo saved again or resized, found by comparing tiny versions of the photos.

A photo is shrunk to 8 x 8 cells, each the mean colour of its part. Two photos are near copies if no cell differs by
more than `TOLERANCE` of 255 in red, green or blue. Measured on the 145 photos of coco-mini: JPEG of quality 20 to 90,
half and double size, 224 x 224 squashed and a shorter side of 64 pixels move a cell by 12 at most, while of the 10,440
pairs of different photos the most alike differ by 59 somewhere (and of 4.5 million pairs of scenes every one by 48 or
more). Photos that were cropped, mirrored or brightened (20 and more) are not found.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from PIL import Image

SIDE = 8  # cells along each side
TOLERANCE = 16  # most that a cell of a copy differs, of 255
# A photo with less contrast than this looks like any other of its colour: paper, fog, a dark screen.
PLAIN = 3 * TOLERANCE
_LOOKED_AT = slice(1, None, 3)  # rows and columns of the cells by which photos are looked up
_STEP = 4 * TOLERANCE  # of their green, the width of a bucket


def thumbnail(photo: Image.Image) -> np.ndarray:
    """The mean colours of a photo's parts, (8, 8, 3) uint8."""
    return np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BOX))


def near_copies(thumbnails: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs of photos that look the same, by their places: a photo and the earliest that it is a near copy of.

    A photo that is a copy of an earlier one is not compared with later ones, so that a thousand copies make a thousand
    pairs and not half a million. Plain photos, which look like any other of their colour, are in no pair.

    Args:
        thumbnails: from `thumbnail`.
    """
    if not thumbnails:
        return []
    cells = np.stack(thumbnails).astype(np.int16)  # (photos, 8, 8, 3)
    has_contrast = np.ptp(cells, axis=(1, 2)).max(axis=1) >= PLAIN
    # A near copy of a photo is alike in each of these cells too, so it lies in the same bucket or right beside it.
    looked_at = cells[:, _LOOKED_AT, _LOOKED_AT, 1].reshape(len(cells), -1)
    buckets, least, most = (((looked_at + shift) // _STEP).tolist() for shift in (0, -TOLERANCE, TOLERANCE))
    seen: dict[tuple[int, ...], list[int]] = {}
    pairs = []
    for place in np.flatnonzero(has_contrast).tolist():
        beside = itertools.product(*(range(low, high + 1) for low, high in zip(least[place], most[place], strict=True)))
        candidates = sorted(other for bucket in beside for other in seen.get(bucket, ()))
        is_alike = (np.abs(cells[candidates] - cells[place]) <= TOLERANCE).all(axis=(1, 2, 3))
        if is_alike.any():
            pairs.append((candidates[int(is_alike.argmax())], place))
        else:
            seen.setdefault(tuple(buckets[place]), []).append(place)
    return pairs
