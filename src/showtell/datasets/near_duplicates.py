"""Near duplicates: the same photo saved again or resized, detected by comparing tiny versions of the photos.

A photo is shrunk to 8 x 8 cells, each the mean colour of its part. Two photos are near copies if no cell differs by
more than `TOLERANCE` of 255 in red, green or blue. Measured on the 145 photos of coco-mini: JPEG of quality 20 to 90,
half and double size, 224 x 224 squashed and a shorter side of 64 pixels move a cell by 12 at most, while of the 10,440
pairs of different photos the most alike differ by 59 in one of them (and of 4.5 million pairs of scenes every one by 48
or more). Photos that were cropped, mirrored or brightened (20 and more) are not detected.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from PIL import Image

SIDE = 8  # cells along each side
TOLERANCE = 16  # of 255, by which a cell of a duplicate differs at most
# A photo with less contrast than this looks like any other of its colour: paper, fog, a dark screen.
MIN_CONTRAST = 3 * TOLERANCE
_KEY_CELLS = slice(1, None, 3)  # rows and columns of the cells by which photos are looked up
_BUCKET = 4 * TOLERANCE  # of their green, the width of a bucket


def thumbnail(photo: Image.Image) -> np.ndarray:
    """The mean colours of a photo's parts, (8, 8, 3) uint8."""
    return np.asarray(photo.resize((SIDE, SIDE), Image.Resampling.BOX))


def near_duplicates(thumbnails: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs of photos that look the same, by their indices: the earliest such photo and its near duplicate.

    A duplicate of an earlier photo is not compared with later ones, so that a thousand copies make a thousand pairs
    and not half a million. Photos without contrast, which look like any other of their colour, are in no pair.

    Args:
        thumbnails: from `thumbnail`.
    """
    if not thumbnails:
        return []
    cells = np.stack(thumbnails).astype(np.int16)  # (photos, 8, 8, 3)
    has_contrast = np.ptp(cells, axis=(1, 2)).max(axis=1) >= MIN_CONTRAST
    # A near duplicate is alike in each of these cells too, so it is in the same bucket or in one next to it.
    keys = cells[:, _KEY_CELLS, _KEY_CELLS, 1].reshape(len(cells), -1)
    buckets, lowest, highest = (((keys + shift) // _BUCKET).tolist() for shift in (0, -TOLERANCE, TOLERANCE))
    by_bucket: dict[tuple[int, ...], list[int]] = {}
    pairs = []
    for photo in np.flatnonzero(has_contrast).tolist():
        ranges = (range(low, high + 1) for low, high in zip(lowest[photo], highest[photo], strict=True))
        candidates = sorted(other for bucket in itertools.product(*ranges) for other in by_bucket.get(bucket, ()))
        is_alike = (np.abs(cells[candidates] - cells[photo]) <= TOLERANCE).all(axis=(1, 2, 3))
        if is_alike.any():
            pairs.append((candidates[int(is_alike.argmax())], photo))
        else:
            by_bucket.setdefault(tuple(buckets[photo]), []).append(photo)
    return pairs
