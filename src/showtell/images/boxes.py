"""Geometry of boxes: left, top, right, bottom in pixels, from a dataset's annotations to a prepared image and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor
from torchvision.ops import clip_boxes_to_image, remove_small_boxes

MIN_SIDE = 0.01  # pixels of a prepared image; boxes that are thinner hold nothing


class Annotation(Protocol):
    """A box as COCO has it: its left upper corner and its size."""

    @property
    def x(self) -> float:
        """The left edge."""

    @property
    def y(self) -> float:
        """The upper edge."""

    @property
    def width(self) -> float:
        """In pixels."""

    @property
    def height(self) -> float:
        """In pixels."""


def corners(annotations: Iterable[Annotation] | None) -> Tensor:
    """Annotated boxes of an image as (n, 4) left, top, right, bottom; n is 0 where there are none."""
    boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in annotations or ()]
    return torch.tensor(boxes, dtype=torch.float32).view(-1, 4)


def boxes_on_image(boxes: Tensor, window: Tensor, size: tuple[int, int], whole_photo: bool = False) -> Tensor:
    """Boxes of a photo as they lie on its prepared image.

    Args:
        boxes: (n, 4) corners in pixels of the photo.
        window: (4,) the part of the photo that the image shows, in its pixels.
        size: (height, width) of the image.
        whole_photo: add the whole image at the end.

    Returns:
        (m, 4) corners in pixels of the image, cut off at its edges. Boxes that it does not show are left out; where
        none is left, the whole image is the only one.
    """
    origin, scale = _origin_and_scale(window, size)
    boxes = boxes.to(window.device, torch.double)
    shown: Tensor = clip_boxes_to_image((boxes - origin) * scale, size).float()
    shown = shown[remove_small_boxes(shown, MIN_SIDE)]
    if whole_photo or not len(shown):
        height, width = size
        shown = torch.cat([shown, shown.new_tensor([[0, 0, width, height]])])
    return shown


def boxes_on_photo(boxes: Tensor, window: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes of a prepared image, (n, 4) corners in its pixels, in pixels of the photo. See `boxes_on_image`."""
    origin, scale = _origin_and_scale(window, size)
    return (boxes / scale + origin).float()


def _origin_and_scale(window: Tensor, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Where a window begins in the photo, and pixels of the image for each of the photo's: (x, y, x, y) each."""
    height, width = size
    left, top, right, bottom = window.double().unbind()
    origin = torch.stack([left, top, left, top])
    scale = torch.stack([width / (right - left), height / (bottom - top)]).repeat(2)
    return origin, scale
