"""From a photo to the numbers that an encoder was made for. The settings travel in the checkpoint."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from showtell.config import Config

_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class Preprocessing(Config):
    """How a photo becomes a square of numbers."""

    image_size: int = Field(ge=8)  # pixels of each side
    resize: Literal["squash", "crop"]  # whole photo into the square, or shorter side to size and the middle cut out
    crop_share: float = Field(1.0, gt=0, le=1)  # with "crop": the square is this share of the shorter side
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"]
    mean: tuple[float, float, float]  # of each channel, subtracted, in units of 0 to 1
    deviation: tuple[float, float, float]  # of each channel, divided by

    def to_square(self, photo: Image.Image) -> Tensor:
        """The photo as a square.

        Args:
            photo: RGB, any size.

        Returns:
            (3, image_size, image_size) uint8.
        """
        side, resampling = self.image_size, _RESAMPLING[self.interpolation]
        if photo.size != (side, side) or self.crop_share != 1:
            box = None
            if self.resize == "crop":
                edge = self.crop_share * min(photo.size)
                left, top = (photo.width - edge) / 2, (photo.height - edge) / 2
                box = (left, top, left + edge, top + edge)
            photo = photo.resize((side, side), resampling, box=box)
        return torch.from_numpy(np.array(photo)).permute(2, 0, 1).contiguous()

    def normalise(self, images: Tensor) -> Tensor:
        """(B, 3, height, width) uint8 to float32: divided by 255, less the mean, over the deviation."""
        mean = torch.tensor(self.mean, device=images.device).view(3, 1, 1)
        deviation = torch.tensor(self.deviation, device=images.device).view(3, 1, 1)
        return (images.float() / 255 - mean) / deviation
