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

    def pad(tensors: Sequence[Tensor], value: int = 0) -> Tensor:
        return pad_sequence(list(tensors), batch_first=True, padding_value=value)

    boxes = [boxes_on_photo(one.boxes, *frame) for one, *frame in zip(regions, batch.windows, batch.sizes, strict=True)]
    scores = [one.scores for one in regions if one.scores is not None]
    labels = [one.labels for one in regions if one.labels is not None]
    attributes = [one.attributes for one in regions if one.attributes is not None]
    return Features(
        vectors=pad([one.vectors for one in regions]),
        is_region=pad([torch.ones_like(own[:, 0], dtype=torch.bool) for own in boxes]),
        regions=Regions(
            pad(boxes),
            pad(scores) if scores else None,
            pad(labels, -1) if labels else None,
            batch.windows.float(),
            pad(attributes, -1) if attributes else None,
        ),
    )
