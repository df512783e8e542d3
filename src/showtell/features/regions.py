"""Encoders of regions: one vector per box, which boxes of a detector are regions, and what they all make of them.

The release of bottom-up attention chooses regions in tools/generate_tsv.py:

1. Non-maximum suppression within each class (overlap 0.3) leaves a box to a class or takes it away.
2. The score of a box is its greatest probability of a class that it was left to.
3. Boxes whose score reaches 0.2 are regions, but at least a minimum number and at most a maximum, the best ones.

The release lists regions in the order of their proposals unless the minimum or the maximum decides; here they always
come best first.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.config import Size
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.quick_import import quick_import
from showtell.images.boxes import boxes_on_photo
from showtell.types import Features, PreparedBatch, Regions

MIN_SIDE = 0.01  # pixels of a prepared image; boxes that are thinner hold nothing


class DetectorConfig(EncoderConfig):
    """Which regions of a detector are kept."""

    trained: Literal[False] = Field(False, description="A detector is always frozen, as in the paper.")
    min_regions: Size = Field(
        10, description="Minimum number of regions; equal to `max_regions` for a fixed number (release: 36)."
    )
    max_regions: Size = Field(100, description="Maximum number of regions.")
    score_threshold: float = Field(
        0.2, ge=0, le=1, description="Minimum class probability of regions beyond `min_regions`."
    )
    nms_threshold: float = Field(
        0.3, gt=0, le=1, description="Intersection over union above which non-maximum suppression drops a box."
    )
    proposals: Annotated[Size, Field(le=6000)] = Field(
        300, description="Number of proposals that are classified (torchvision: up to 1,000)."
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.min_regions <= self.max_regions <= self.proposals:
            raise ValueError(
                f"min_regions={self.min_regions} must not be above max_regions={self.max_regions}, "
                f"nor that above proposals={self.proposals}"
            )
        return self


def choose_regions(boxes: Tensor, scores: Tensor, config: DetectorConfig) -> tuple[Tensor, Tensor, Tensor]:
    """The regions among a detector's boxes.

    Args:
        boxes: (n, C, 4) corners of n boxes, as they are for each of C classes.
        scores: (n, C) probability of each class, without the background.
        config: how many there are, and from which score and up to which overlap.

    Returns:
        Of the regions, best first: (r,) indices of the n boxes, (r,) scores, (r,) labels, which count the background
        as 0; a box that every class dropped has score 0 and label -1, and comes last.
    """
    batched_nms = quick_import("torchvision.ops").batched_nms
    is_box = ((boxes[..., 2:] - boxes[..., :2]) >= MIN_SIDE).all(-1)
    # Weaker boxes never drop stronger ones, so those below a floor need no suppression as long as enough stand above.
    for floor in (config.score_threshold, config.score_threshold / 20, 0.0):
        index, label = torch.where(is_box & (scores >= floor))
        # In double precision: torchvision moves the boxes of class c aside by c times the largest coordinate.
        kept = batched_nms(boxes[index, label].double(), scores[index, label].double(), label, config.nms_threshold)
        remaining = torch.zeros_like(scores)
        remaining[index[kept], label[kept]] = scores[index[kept], label[kept]]
        best, best_label = remaining.max(-1)
        if int((best > 0).sum()) >= config.min_regions:
            break
    regions = best.argsort(descending=True, stable=True)
    enough = int((best >= config.score_threshold).sum())
    regions = regions[: min(max(enough, config.min_regions), config.max_regions)]
    best, best_label = best[regions], best_label[regions]
    return regions, best, torch.where(best > 0, best_label + 1, -1)


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
