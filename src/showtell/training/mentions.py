"""Which words of the training captions name which objects, and which regions those are: for attention supervision.

How much of each region is the object is known with the features:

    grids               the share of the cell that the boxes cover (`images/boxes.py`)
    detected regions    1 if the region overlaps a box by an intersection over union of 1/2 or more, 0 if not
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError
from showtell.features import Encoder
from showtell.grounding.mentions import MIN_IOU, category_phrases, named_boxes
from showtell.images.boxes import coverage
from showtell.types import Features, Mentions, NamingWords


@dataclass(frozen=True)
class ImageMentions:
    """The mentions in the captions of one image."""

    boxes: tuple[Tensor, ...]  # each (n, 4), the sets of boxes that its captions name
    indices: tuple[Tensor, ...]  # of each caption, (its tokens + 1 for the end) int64: which set, or -1

    def chosen(self, captions: Sequence[int]) -> ImageMentions:
        """The mentions of some of the captions, in this order."""
        return replace(self, indices=tuple(self.indices[caption] for caption in captions))


def find_mentions(
    records: Sequence[CaptionRecord], lengths: Sequence[Sequence[int]], *, naming: NamingWords
) -> list[ImageMentions]:
    """The mentions of each image, by its captions' lengths, end included; a DataError without boxes or any mention."""
    if any(record.boxes is None for record in records):
        raise DataError(
            "objective.attention_supervision needs the boxes of objects, and the dataset has none: use one with boxes, "
            "such as COCO with its instances file, or set objective.attention_supervision.weight=0."
        )
    phrases = category_phrases(records)
    images = []
    for record, lengths_of_image in zip(records, lengths, strict=True):
        boxes: dict[tuple[float, ...], tuple[int, Tensor]] = {}  # each set once, with its index
        indices = []
        for caption, length in enumerate(lengths_of_image):
            named = torch.full((length,), -1)
            for phrase in named_boxes(record, caption, phrases, naming):
                index, _ = boxes.setdefault(tuple(phrase.boxes.flatten().tolist()), (len(boxes), phrase.boxes))
                named[phrase.first : min(phrase.end, length - 1)] = index
            indices.append(named)
        images.append(ImageMentions(tuple(corners for _, corners in boxes.values()), tuple(indices)))
    if not any(image.boxes for image in images):
        raise DataError(
            "objective.attention_supervision needs captions that name objects, and no training caption names any of "
            "the objects that have boxes: set objective.attention_supervision.weight=0."
        )
    return images


def collate_mentions(
    images: Sequence[ImageMentions], windows: Sequence[tuple[float, float, float, float]], shape: tuple[int, int]
) -> Mentions:
    """The mentions of B images as one record of (N, T), with the part of each photo that is seen."""
    indices = torch.full((len(images), *shape), -1)
    for image, own in zip(indices, images, strict=True):
        for row, named in zip(image, own.indices, strict=False):
            row[: len(named)] = named
    most = max([1, *(len(boxes) for image in images for boxes in image.boxes)])
    sets = [
        torch.stack([torch.cat((boxes, boxes[:1].expand(most - len(boxes), 4))) for boxes in image.boxes])
        if image.boxes
        else torch.zeros(1, most, 4)
        for image in images
    ]
    return Mentions(indices, pad_sequence(sets, batch_first=True), torch.tensor(windows, dtype=torch.float32))


@torch.no_grad()
def locate(mentions: Mentions, encoder: Encoder, features: Features) -> Mentions:
    """The mentions with how much of each region is the object; a DataError if it is not known what the regions saw."""
    rectangles = encoder.rectangles(features, mentions.windows)  # (B, R, 4)
    if rectangles is None:
        raise DataError(
            "The features came without boxes, so it is not known which of them saw an object: set "
            "objective.attention_supervision.weight to 0, or convert features that have boxes."
        )
    if features.regions is None:
        targets = coverage(rectangles.unsqueeze(1), mentions.boxes).float()
    else:
        from torchvision.ops import box_iou  # slow to import

        overlaps = [box_iou(own.view(-1, 4), of) for own, of in zip(mentions.boxes, rectangles, strict=True)]
        iou = torch.stack(overlaps).view(*mentions.boxes.shape[:3], -1).amax(2)  # (B, M, R)
        targets = (iou >= MIN_IOU).float()
    return replace(mentions, targets=targets * features.is_region.unsqueeze(1))
