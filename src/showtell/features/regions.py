"""Encoders of regions: one vector per box, and what they all make of their regions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.features.contract import Encoder
from showtell.images.boxes import boxes_on_photo
from showtell.types import Features, PreparedBatch, Regions


class RegionEncoder(Encoder, abc.ABC):
    """An encoder whose vectors belong to boxes, which it reports in `Features.regions`."""

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The boxes of the regions."""
        assert features.regions is not None
        return features.regions.boxes


@dataclass(frozen=True)
class ImageRegions:
    """The r regions of one image."""

    vectors: Tensor  # (r, D)
    boxes: Tensor  # (r, 4) in pixels of the prepared image
    scores: Tensor | None = None  # (r,)
    labels: Tensor | None = None  # (r,)
    attributes: Tensor | None = None  # (r,)


def collect_regions(regions: Sequence[ImageRegions], batch: PreparedBatch) -> Features:
    """The regions of B images as one record, with boxes in pixels of the photos."""

    def padded(name: str, value: int = 0) -> Tensor | None:
        tensors = [getattr(image, name) for image in regions]
        return None if tensors[0] is None else pad_sequence(tensors, batch_first=True, padding_value=value)

    frames = zip(regions, batch.windows, batch.sizes, strict=True)
    boxes = pad_sequence([boxes_on_photo(image.boxes, *frame) for image, *frame in frames], batch_first=True)
    counts = torch.tensor([len(image.boxes) for image in regions], device=boxes.device)
    vectors = padded("vectors")
    assert vectors is not None
    return Features(
        vectors,
        torch.arange(boxes.shape[1], device=boxes.device) < counts.unsqueeze(-1),
        Regions(boxes, padded("scores"), padded("labels", -1), batch.windows.float(), padded("attributes", -1)),
    )
