"""Geometry of boxes: left, top, right, bottom in pixels, from a dataset's annotations to a prepared image and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]


def corners(annotations: Iterable[Any] | None) -> Tensor:
    """Annotated boxes of an image, with x, y, width and height as COCO has them, as (n, 4) corners; n may be 0."""
    boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in annotations or ()]
    return torch.tensor(boxes, dtype=torch.float32).view(-1, 4)


def boxes_on_photo(boxes: Tensor, window: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes (n, 4) on an image of some (height, width) in pixels of its photo, of which it shows the window (4,)."""
    height, width = size
    left, top, right, bottom = window.double().unbind()
    scale = torch.stack([width / (right - left), height / (bottom - top)]).repeat(2)
    return (boxes / scale + torch.stack([left, top, left, top])).float()


def scale_boxes(boxes: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Boxes (R, 4) of a photo of an old (width, height), for the same photo in a new size."""
    return boxes * torch.tensor([new[0] / old[0], new[1] / old[1]] * 2)


def coverage(rectangles: Tensor, boxes: Tensor) -> Tensor:
    """The share of each rectangle (..., R, 4) that the union of some boxes (..., n, 4) covers: (..., R) float64."""
    # the edges of the boxes cut the plane into cells, each of which is covered as a whole or not at all
    rectangles, boxes = rectangles.double(), boxes.double()
    shares, is_within = [], []
    for first, last in ((0, 2), (1, 3)):
        borders = boxes[..., [first, last]].flatten(-2).sort(-1).values  # (..., 2 n)
        start, end = borders[..., None, :-1], borders[..., None, 1:]
        low, high = rectangles[..., first, None], rectangles[..., last, None]  # (..., R, 1)
        inside = torch.minimum(end, high) - torch.maximum(start, low)
        shares.append((inside.clamp(min=0) / (high - low)).nan_to_num(0.0, 0.0, 0.0))  # (..., R, 2 n - 1)
        is_within.append((boxes[..., first, None] <= start) & (end <= boxes[..., last, None]))  # (..., n, 2 n - 1)
    is_covered = (is_within[1].unsqueeze(-1) & is_within[0].unsqueeze(-2)).any(-3)  # (..., rows, columns)
    return ((shares[1] @ is_covered.double()) * shares[0]).sum(-1)


def overlap_shares(intervals: Floats, count: int) -> Floats:
    """The share of each interval (R, 2) that lies in each of the cells 0 to 1, 1 to 2, ...: (R, count)."""
    first, last = intervals[:, :1], intervals[:, 1:]
    inside = np.diff(np.clip(np.arange(count + 1, dtype=np.float64), first, last))
    return np.divide(inside, last - first, out=np.zeros_like(inside), where=last > first)
