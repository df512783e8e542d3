"""From attention over places to a map over the pixels of the photo, and back to nothing lost on the way.

A map is a density: what a place weighs is spread evenly over the rectangle of the upright photo that it saw (the
encoder's `rectangles`, which know of resizing, cropping and turning), so that a map adds up to what the weights add up
to.

    map(pixel) = sum_r weight_r |pixel and rectangle_r| / |rectangle_r|

 1. A pixel that several places saw, where cells of pooled maps or boxes overlap, gets something from each of them.
 2. A pixel that no place saw, such as those that were cropped away, gets 0.
 3. A pixel on the edge of a cell belongs to it by the share of its area that lies inside.
 4. What a convolution sees beyond its cell, and what resizing blends in from beside it, is not counted.

`nearest` is that map. `smooth` is the picture of the papers: papers/002 upsamples the weights by 16 and applies a
Gaussian; the authors' release of papers/003 does the same with a deviation of 20 of those samples, that is 1.25 cells,
and so do we, over the part of the photo that was seen, mirrored at its edges, so that no weight is lost there; then
samples are laid onto pixels as cells are above. Regions have no neighbours to be blended with: of them both maps are
the same.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Style = Literal["nearest", "smooth"]
Floats = npt.NDArray[np.float64]

SAMPLES = 16  # of each cell, along each side
DEVIATION = 1.25  # of the Gaussian, in cells: 20 samples


def attention_map(
    weights: Tensor,
    boxes: Tensor,
    size: tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,
    style: Style = "nearest",
) -> Floats:
    """Lay weights of places onto pixels.

    Args:
        weights: (..., R).
        boxes: (R, 4) left, top, right, bottom of each place, in pixels of the map to be made.
        size: (width, height) of the map. For a smaller one of the same photo, shrink the boxes alike (`scaled`).
        grid: (rows, columns) where the places are a grid, row by row; None for regions.
        style: see above.

    Returns:
        (..., height, width).
    """
    edges = boxes.double().cpu().numpy()
    values = weights.detach().double().cpu().numpy()
    if style == "smooth" and grid is not None:
        across, down = _smooth_shares(edges.reshape(*grid, 4), size)  # (columns, width) and (rows, height)
        return np.einsum("...rc,cx,ry->...yx", values.reshape(*values.shape[:-1], *grid), across, down, optimize=True)
    across = shares(edges[:, [0, 2]], _pixels(size[0]))  # (R, width)
    down = shares(edges[:, [1, 3]], _pixels(size[1]))  # (R, height)
    return np.einsum("...r,rx,ry->...yx", values, across, down, optimize=True)


def scaled(boxes: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Boxes (R, 4) of a photo of some (width, height), for the same photo in another size."""
    return boxes * torch.tensor([new[0] / old[0], new[1] / old[1]] * 2)


def shares(spans: Floats, borders: Floats) -> Floats:
    """The share of each span (R, 2) that lies between each border and the next: (R, borders - 1)."""
    first, last = spans[:, :1], spans[:, 1:]
    inside = np.diff(np.clip(borders, first, last))
    return np.divide(inside, last - first, out=np.zeros_like(inside), where=last > first)


def _pixels(count: int) -> Floats:
    """Their borders."""
    return np.arange(count + 1, dtype=np.float64)


def _smooth_shares(edges: Floats, size: tuple[int, int]) -> tuple[Floats, Floats]:
    """How the columns (columns, width) and the rows (rows, height) of a grid with boxes (rows, columns, 4) spread."""
    across = _smooth_along(edges[0, :, 0], edges[0, :, 2], size[0])
    down = _smooth_along(edges[:, 0, 1], edges[:, 0, 3], size[1])
    return across, down


def _smooth_along(first: Floats, last: Floats, pixels: int) -> Floats:
    """Cells of one axis, upsampled, blurred, and laid onto pixels: (cells, pixels).

    A cell that is averaged over the length of a cell is the tent that straight lines between the cells make of it.
    """
    count = len(first) * SAMPLES
    start, end = first.min(), last.max()
    samples = (np.stack((first, last), axis=-1) - start) * (count / (end - start))
    tent = np.ones(SAMPLES + 1)
    tent[[0, -1]] = 0.5
    reach = math.ceil(4 * DEVIATION * SAMPLES)
    gaussian = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * (DEVIATION * SAMPLES) ** 2))
    blurred = shares(samples, _pixels(count)) @ _mirrored(tent, count) @ _mirrored(gaussian, count)
    borders = np.linspace(start, end, count + 1)
    return blurred @ shares(np.stack((borders[:-1], borders[1:]), axis=-1), _pixels(pixels))


def _mirrored(kernel: Floats, count: int) -> Floats:
    """What an even filter of odd length does to samples in a row, which is mirrored at its ends: (count, count)."""
    reach = len(kernel) // 2
    places = np.arange(count)[:, None] + np.arange(-reach, reach + 1)
    folded = places % (2 * count)
    found = np.zeros((count, count))
    np.add.at(found, (np.arange(count)[:, None], np.minimum(folded, 2 * count - 1 - folded)), kernel / kernel.sum())
    return found
