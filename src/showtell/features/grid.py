"""Encoders of grids: one vector per cell of a convolutional map or per patch of a transformer."""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor

from showtell.features.contract import Encoder
from showtell.types import Features, PreparedBatch


class GridEncoder(Encoder, abc.ABC):
    """Images to one vector per grid cell, row by row."""

    stride: int  # pixels of the image between the cells of the map
    grid: int | None = None  # cells of each side to which the map is pooled; None: as it comes

    @abc.abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, height, width) to feature maps (B, D, rows, columns)."""

    def grid_of(self, cells: int) -> tuple[int, int]:
        """(rows, columns) of this number of cells: images are squares."""
        return (math.isqrt(cells), math.isqrt(cells))

    def forward(self, batch: PreparedBatch) -> Features:
        """Features with R = rows x columns, row by row from the upper left. Windows and boxes change nothing."""
        assert isinstance(batch.images, Tensor), "squares are of one size"
        pixels = self.preprocessing.normalise(batch.images.contiguous(memory_format=torch.channels_last))
        with torch.set_grad_enabled(torch.is_grad_enabled() and bool(self.config.trained)):
            vectors = self.maps(pixels).flatten(2).transpose(1, 2).contiguous()  # Xu et al. 2015, §3.1.1: a
        return Features(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool))

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The rectangle of each cell, without what a convolution sees beyond; pooled cells may overlap."""
        rows, columns = self.grid_of(features.vectors.shape[1])
        row, column = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).unbind(-1)
        rectangles = []
        for left, top, right, bottom in windows.double().tolist():
            size = self.preprocessing.prepared_size((round(right - left), round(bottom - top)))
            x = left + (right - left) * self._edges(columns, size[0])[:, column]
            y = top + (bottom - top) * self._edges(rows, size[1])[:, row]
            rectangles.append(torch.stack((x[0], y[0], x[1], y[1]), -1))
        return torch.stack(rectangles).float().to(windows.device)

    def map_side(self, pixels: int, cells: int) -> int:
        """Number of cells of the map, before it is pooled to `cells`, along a side of an image of some pixels."""
        return cells if self.grid is None else math.ceil(pixels / self.stride)

    def _edges(self, cells: int, pixels: int) -> Tensor:
        """Where the cells along a side of an image begin and end, (2, cells), as shares of it."""
        side = self.map_side(pixels, cells)
        if side in (pixels // self.stride, math.ceil(pixels / self.stride)):
            borders = (torch.arange(side + 1).double() * self.stride).clamp(max=pixels) / pixels
        else:  # of a backbone that does not pad its pictures, and whose cells lie closer together
            borders = torch.arange(side + 1).double() / side
        cell = torch.arange(cells)
        return torch.stack((borders[cell * side // cells], borders[-(-(cell + 1) * side // cells)]))
