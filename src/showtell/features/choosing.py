"""Which boxes of a detector are regions, as the release of bottom-up attention chooses them in tools/generate_tsv.py.

1. Non-maximum suppression within each class (overlap 0.3) leaves a box to a class or takes it away.
2. The score of a box is its greatest probability of a class that it was left to.
3. Boxes whose score reaches 0.2 are regions, but at least a minimum number and at most a maximum, the best ones.

The release lists regions in the order of their proposals unless the minimum or the maximum decides; here they always
come best first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.images.boxes import MIN_SIDE


def choose_regions(
    boxes: Tensor, scores: Tensor, *, nms_threshold: float, score_threshold: float, minimum: int, maximum: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The regions among a detector's boxes.

    Args:
        boxes: (n, C, 4) corners of n boxes, as they are for each of C classes.
        scores: (n, C) probability of each class, without the background.
        nms_threshold: intersection over union above which non-maximum suppression drops the weaker box of a class.
        score_threshold: of regions beyond the minimum number.
        minimum: number of regions, whatever their scores; all n if there are fewer.
        maximum: number of regions.

    Returns:
        Of the regions, best first: (r,) indices of the n boxes, (r,) scores, (r,) classes; a box that every class
        dropped has score 0 and class -1, and comes last.
    """
    from torchvision.ops import batched_nms  # slow to import

    is_box = ((boxes[..., 2:] - boxes[..., :2]) >= MIN_SIDE).all(-1)
    # Weaker boxes never drop stronger ones, so those below a floor need no suppression as long as enough stand above.
    for floor in (score_threshold, score_threshold / 20, 0.0):
        index, label = torch.where(is_box & (scores >= floor))
        # In double precision: torchvision moves the boxes of class c aside by c times the largest coordinate.
        kept = batched_nms(boxes[index, label].double(), scores[index, label].double(), label, nms_threshold)
        remaining = torch.zeros_like(scores)
        remaining[index[kept], label[kept]] = scores[index[kept], label[kept]]
        best, best_label = remaining.max(-1)
        if int((best > 0).sum()) >= minimum:
            break
    regions = best.argsort(descending=True, stable=True)
    regions = regions[: min(max(int((best >= score_threshold).sum()), minimum), maximum)]
    best, best_label = best[regions], best_label[regions]
    return regions, best, torch.where(best > 0, best_label, -1)
