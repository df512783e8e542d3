"""Regions of a detector: which of its boxes are kept, and those of several photos as one record.

The release of bottom-up attention chooses regions in tools/generate_tsv.py:

1. Non-maximum suppression within each class (overlap 0.3) leaves a box to a class or takes it away.
2. The score of a box is its greatest probability of a class that it was left to.
3. Boxes whose score reaches 0.2 are regions, but at least a minimum number and at most a maximum, the best ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.features.quick_import import quick_import
from showtell.images.boxes import boxes_on_photo
from showtell.types import Features, PreparedBatch, Regions


def choose_regions(
    boxes: Tensor,  # (n, 4) corners
    scores: Tensor,  # (n, C) probability of each class, without the background
    *,
    min_regions: int,
    max_regions: int,
    score_threshold: float,
    nms_threshold: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The regions among a detector's boxes, best first: (r,) indices of the n boxes, (r,) scores, (r,) labels.

    Labels count the background as 0; a box that every class dropped has score 0 and label -1, and comes last.
    """
    batched_nms = quick_import("torchvision.ops").batched_nms
    # Weaker boxes never drop stronger ones, so those below a floor need no suppression as long as enough stand above.
    for floor in (score_threshold, score_threshold / 20, 0.0):
        index, label = torch.where(scores >= floor)
        # In double precision: torchvision moves the boxes of class c aside by c times the largest coordinate.
        kept = batched_nms(boxes[index].double(), scores[index, label].double(), label, nms_threshold)
        remaining = torch.zeros_like(scores)
        remaining[index[kept], label[kept]] = scores[index[kept], label[kept]]
        best, best_label = remaining.max(-1)
        if int((best > 0).sum()) >= min_regions:
            break
    regions = best.argsort(descending=True, stable=True)
    enough = int((best >= score_threshold).sum())
    regions = regions[: min(max(enough, min_regions), max_regions)]
    best, best_label = best[regions], best_label[regions]
    return regions, best, torch.where(best > 0, best_label + 1, -1)


@dataclass(frozen=True)
class ImageRegions:
    """The r regions of one image."""

    vectors: Tensor  # (r, D)
    boxes: Tensor  # (r, 4) in pixels of the prepared image
    scores: Tensor  # (r,)
    labels: Tensor  # (r,)
    attributes: Tensor  # (r,)


def collect_regions(regions: Sequence[ImageRegions], batch: PreparedBatch) -> Features:
    """The regions of B images as one record, with boxes in pixels of the photos."""

    def padded(name: str, value: int = 0) -> Tensor:
        return pad_sequence([getattr(image, name) for image in regions], batch_first=True, padding_value=value)

    frames = zip(regions, batch.windows, batch.sizes, strict=True)
    boxes = pad_sequence([boxes_on_photo(image.boxes, *frame) for image, *frame in frames], batch_first=True)
    counts = torch.tensor([len(image.boxes) for image in regions], device=boxes.device)
    return Features(
        padded("vectors"),
        torch.arange(boxes.shape[1], device=boxes.device) < counts.unsqueeze(-1),
        Regions(boxes, padded("scores"), padded("labels", -1), batch.windows.float(), padded("attributes", -1)),
    )
