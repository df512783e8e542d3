"""Attention maps: weights of regions or grid cells as densities over the pixels of the photo.

    map(pixel) = sum_r weight_r |pixel and rectangle_r| / |rectangle_r|

over the rectangles of the encoder, which account for resizing, cropping and orientation: a map has the sum of the
weights. `nearest` is that map. `smooth` is the picture of the papers: Gu et al. 2018 upsample the weights by 16 and
apply a Gaussian; the release of Xu et al. 2015 does so with a deviation of 20 of those samples, that is 1.25 cells, and
so do we, over the part of the photo that was seen, mirrored at its edges, so that no weight is lost there; then samples
are laid onto pixels as cells are above. Boxes have no neighbours: both maps of them are the same.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from torch import Tensor

from showtell.images.boxes import Floats, overlap_shares

Style = Literal["nearest", "smooth"]

SAMPLES = 16  # of each cell, along each side
DEVIATION = 1.25  # of the Gaussian, in cells: 20 samples


def attention_map(
    weights: Tensor,  # (..., R)
    boxes: Tensor,  # (R, 4) left, top, right, bottom in pixels of the map; `scale_boxes` fits them to another size
    size: tuple[int, int],
    *,
    grid: tuple[int, int] | None = None,  # (rows, columns) of the cells, row by row; None for boxes
    style: Style = "nearest",
) -> Floats:
    """The map of some weights over a picture of size (width, height): (..., height, width)."""
    edges = boxes.double().cpu().numpy()
    values = weights.detach().double().cpu().numpy()
    if style == "smooth" and grid is not None:
        corners = edges.reshape(*grid, 4)
        across = _smooth_along(corners[0, :, 0], corners[0, :, 2], size[0])  # (columns, width)
        down = _smooth_along(corners[:, 0, 1], corners[:, 0, 3], size[1])  # (rows, height)
        cells = values.reshape(*values.shape[:-1], *grid)
        smooth: Floats = np.einsum("...rc,cx,ry->...yx", cells, across, down, optimize=True)
        return smooth
    across = overlap_shares(edges[:, [0, 2]], size[0])  # (R, width)
    down = overlap_shares(edges[:, [1, 3]], size[1])  # (R, height)
    exact: Floats = np.einsum("...r,rx,ry->...yx", values, across, down, optimize=True)
    return exact


def _smooth_along(first: Floats, last: Floats, pixels: int) -> Floats:
    """How the cells of one axis spread over pixels when interpolated linearly and blurred: (cells, pixels)."""
    count = len(first) * SAMPLES
    start, end = first.min(), last.max()
    samples = (np.stack((first, last), axis=-1) - start) * (count / (end - start))
    tent = np.ones(SAMPLES + 1)
    tent[[0, -1]] = 0.5
    reach = math.ceil(4 * DEVIATION * SAMPLES)
    gaussian = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * (DEVIATION * SAMPLES) ** 2))
    blurred = overlap_shares(samples, count) @ _reflecting_filter(tent, count) @ _reflecting_filter(gaussian, count)
    borders = np.linspace(start, end, count + 1)
    return blurred @ overlap_shares(np.stack((borders[:-1], borders[1:]), axis=-1), pixels)


def _reflecting_filter(kernel: Floats, count: int) -> Floats:
    """The matrix of a symmetric filter over samples with reflecting ends: (count, count)."""
    reach = len(kernel) // 2
    positions = np.arange(count)[:, None] + np.arange(-reach, reach + 1)
    folded = positions % (2 * count)
    matrix = np.zeros((count, count))
    np.add.at(matrix, (np.arange(count)[:, None], np.minimum(folded, 2 * count - 1 - folded)), kernel / kernel.sum())
    return matrix
