"""From a photo to the numbers that an encoder was made for. The settings travel in the checkpoint."""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator
from torch import Tensor

from showtell.config import Config, Pixels


class Preprocessing(Config):
    """How a photo becomes numbers: a square for most encoders of grids, or its own shape."""

    image_size: Pixels = Field(
        description="Pixels of each side; with `fit`, of the shorter side; with `none`, minimum of each side."
    )
    resize: Literal["squash", "crop", "fit", "none"] = Field(
        description="`squash` resizes the whole photo to a square, `crop` cuts out the central square, `fit` resizes "
        "the shorter side and keeps the aspect ratio, `none` shrinks photos that are larger than `longest` and leaves "
        "others as they are."
    )
    crop_share: float = Field(
        1.0, gt=0, le=1, description="With `crop`: side of the square, as a share of the photo's shorter side."
    )
    longest: Pixels | None = Field(
        None, description="With `fit` and `none`: maximum number of pixels of the longer side."
    )
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(description="Resampling filter.")
    mean: tuple[float, float, float] = Field(
        description="Mean of each colour channel, subtracted from values between 0 and 1."
    )
    deviation: tuple[float, float, float] = Field(
        description="Standard deviation of each colour channel, by which values are divided."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.resize in ("fit", "none")) != (self.longest is not None):
            raise ValueError("longest goes with resize=fit and resize=none, and is needed there")
        if self.longest is not None and self.longest < self.image_size:
            raise ValueError(f"longest={self.longest} is less than image_size={self.image_size}, the shorter side")
        return self

    @property
    def max_bytes(self) -> int:
        """What a prepared photo needs at most."""
        longer = self.longest or self.image_size
        return 3 * longer * (longer if self.resize == "none" else self.image_size)

    def prepare(self, photo: Image.Image, full_size: tuple[int, int] | None = None) -> Tensor:
        """An RGB photo, perhaps decoded at less than its full (width, height), to (3, height, width) uint8."""
        full_size = full_size or photo.size
        size = self.prepared_size(full_size)
        left, top, right, bottom = self.window(full_size)
        x, y = photo.width / full_size[0], photo.height / full_size[1]
        window = (left * x, top * y, right * x, bottom * y)
        if photo.size != size or window != (0, 0, *photo.size):
            photo = photo.resize(size, Image.Resampling[self.interpolation.upper()], box=window)
        # By NumPy: a thread that uses a parallel operator of torch gets OpenMP threads of its own; more threads than
        # cores slow encoders down.
        return torch.from_numpy(np.array(np.asarray(photo).transpose(2, 0, 1), order="C"))

    def min_decoded_size(self, photo_size: tuple[int, int]) -> tuple[int, int]:
        """The least (width, height) at which a photo of some (width, height) may be decoded: twice what is prepared."""
        if self.interpolation == "nearest":  # it picks pixels instead of averaging them
            return photo_size
        width, height = self.prepared_size(photo_size)
        left, top, right, bottom = self.window(photo_size)
        return (
            math.ceil(2 * width * photo_size[0] / (right - left)),
            math.ceil(2 * height * photo_size[1] / (bottom - top)),
        )

    def window(self, photo_size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Which part of a photo of some (width, height) is seen: left, top, right, bottom in its pixels."""
        width, height = photo_size
        if self.resize != "crop":
            return (0, 0, width, height)
        edge = self.crop_share * min(photo_size)
        left, top = (width - edge) / 2, (height - edge) / 2
        return (left, top, left + edge, top + edge)

    def prepared_size(self, photo_size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) of the image that a photo of some (width, height) becomes."""
        if self.longest is None:
            return (self.image_size, self.image_size)
        shorter, longer = min(photo_size), max(photo_size)
        largest, smallest = (1.0, self.image_size) if self.resize == "none" else (self.image_size / shorter, 1)
        scale = min(largest, self.longest / longer)
        return (max(smallest, round(photo_size[0] * scale)), max(smallest, round(photo_size[1] * scale)))

    def normalise(self, images: Tensor) -> Tensor:
        """(..., 3, height, width) uint8 to float32: divided by 255, less the mean, over the deviation."""
        mean = torch.tensor(self.mean, device=images.device).view(3, 1, 1)
        deviation = torch.tensor(self.deviation, device=images.device).view(3, 1, 1)
        return (images / 255).sub_(mean).div_(deviation)
