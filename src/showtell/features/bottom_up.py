"""The encoder `bottom_up`: the regions of bottom-up attention (Anderson et al., 2018), from a photo.

Captioners that were trained on the features of the authors' release look through this detector
(features/bottom_up_detector.py). Its weights were converted from Caffe by two projects, whose layouts
features/bottom_up_weights.py reads. Regions are those of the release's tools/generate_tsv.py: the boxes of the
proposals, chosen as features/choosing.py has it, 10 to 100 of a photo.

Where we differ from the release:
1. A photo is resized by Pillow, in whole numbers and smoothed where it shrinks, before the mean is subtracted; the
   release subtracts first and does not smooth. Photos of COCO grow, for which both are the same up to rounding.
2. Regions come best first. A region's class is that to which suppression left it, as its score is; the release's demo
   names the likeliest class, whatever suppression said.
3. Proposals are ranked by the difference of their two scores, not by its softmax, which rounds great ones to 1.

Where we differ from airsplay/py-bottom-up-attention: it takes the boxes after regression (`refine: true` here), cuts
them off a pixel further out, keeps thin ones, resizes photos to 800 pixels, and chooses regions across classes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from showtell.config import Pixels
from showtell.errors import WeightsError
from showtell.features.bottom_up_detector import (
    FEATURE_SIZE,
    STRIDE,
    BottomUpDetector,
    clip_to_pixels,
    cover_pixels,
    move_boxes,
)
from showtell.features.bottom_up_weights import load_detector
from showtell.features.choosing import DetectorConfig, boxes_of, choose_regions
from showtell.features.contract import group_by_shape
from showtell.features.regions import ImageRegions, RegionEncoder, collect_regions
from showtell.features.weights import weights_path
from showtell.images.boxes import boxes_on_photo
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

Side = Annotated[Pixels, Field(ge=STRIDE)]

_PIXEL_MEANS = (122.7717, 115.9465, 102.9801)  # red, green, blue


class BottomUpConfig(DetectorConfig):
    """The detector of bottom-up attention and which of its regions are kept."""

    name: Literal["bottom_up"] = "bottom_up"
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="A file of converted weights, `random`; `pretrained` says where such files come from.",
    )
    attributes: bool = Field(True, description="Name attributes; if false, weights need no attribute head.")
    attribute_threshold: float = Field(
        0.1, ge=0, le=1, description="Minimum probability of an attribute that is named (release: 0.1)."
    )
    image_size: Side = Field(600, description="Pixels of the shorter side.")
    longest: Side = Field(1000, description="Maximum number of pixels of the longer side.")
    refine: bool = Field(
        False, description="Report boxes after regression for their class; vectors stay those of the proposals."
    )

    @model_validator(mode="after")
    def _has_sides(self) -> Self:
        if self.longest < self.image_size:
            raise ValueError(f"longest={self.longest} is less than image_size={self.image_size}, the shorter side")
        return self


class BottomUp(RegionEncoder):
    """What the detector of bottom-up attention finds; each photo in its own size."""

    config: BottomUpConfig
    feature_size = FEATURE_SIZE

    def __init__(self, config: BottomUpConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        if load_weights and config.weights == "pretrained":
            raise WeightsError(
                "The weights of bottom_up cannot be fetched by name: take bua-caffe-frcn-r101-k10-100.pth from the "
                "table of https://github.com/MILVLG/bottom-up-attention.pytorch, or airsplay's "
                "faster_rcnn_from_caffe_attr_original.pkl, and give that file as the weights (encoder.weights=FILE)."
            )
        self.detector = BottomUpDetector(config.attributes)
        if load_weights and config.weights != "random":
            load_detector(self.detector, weights_path(config.weights))
        self.detector.to(memory_format=torch.channels_last)
        objects, attributes = visual_genome_names()
        self.categories = ("__background__", *objects)
        self.attributes = attributes if config.attributes else ()
        self.preprocessing = Preprocessing(
            image_size=config.image_size,
            resize="fit",
            longest=config.longest,
            interpolation="bilinear",
            mean=tuple(mean / 255 for mean in _PIXEL_MEANS),
            deviation=(1 / 255,) * 3,
        )

    @torch.no_grad()
    def forward(self, batch: PreparedBatch) -> Features:
        """The regions of each photo, best first. A photo without a proposal is one region."""
        images, sizes = batch.images, batch.sizes
        regions: dict[int, ImageRegions] = {}
        for indices in group_by_shape(sizes, images[0].device):
            pixels = self.preprocessing.normalise(torch.stack([images[index] for index in indices])).flip(1)
            maps = self.detector.maps(pixels.to(memory_format=torch.channels_last))
            for row, index in enumerate(indices):
                regions[index] = self._regions(maps[row : row + 1], batch.windows[index], sizes[index])
        return collect_regions([regions[index] for index in range(len(batch))], batch)

    def _regions(self, maps: Tensor, window: Tensor, size: tuple[int, int]) -> ImageRegions:
        """The regions of one photo.

        Args:
            maps: (1, 1024, rows, columns).
            window: (4,) the part of the photo that the image shows.
            size: (height, width) of the image.
        """
        height, width = size
        scale = width / float(window[2] - window[0])
        proposals = self.detector.propose(maps, size, scale, self.config.proposals)
        if not len(proposals):
            proposals = maps.new_tensor([[0, 0, width - 1, height - 1]])
        vectors = self.detector.vectors(maps, proposals)
        logits = self.detector.cls_score(vectors)
        scores = logits.softmax(-1)[:, 1:]
        by_class = proposals.unsqueeze(1).expand(-1, scores.shape[-1], -1)
        if self.config.refine:
            deltas = self.detector.bbox_pred(vectors).unflatten(-1, (-1, 4))[:, 1:]
            by_class = clip_to_pixels(move_boxes(by_class, deltas), size)
        on_photo = cover_pixels(boxes_on_photo(by_class, window, size))  # where the release measures overlaps
        chosen, best, labels = choose_regions(on_photo, scores, self.config)
        boxes = boxes_of(by_class, proposals, chosen, labels)
        return ImageRegions(vectors[chosen], boxes, best, labels, self._attributes(vectors[chosen], logits[chosen]))

    def _attributes(self, vectors: Tensor, logits: Tensor) -> Tensor | None:
        """The likeliest attribute of each region, (r,); -1 where none is likely enough."""
        if not self.config.attributes:
            return None
        best, indices = self.detector.attribute_probabilities(vectors, logits)[:, 1:].max(-1)
        return torch.where(best >= self.config.attribute_threshold, indices, -1)


@cache
def visual_genome_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the 1,600 objects and 400 attributes that the detector knows, in the order of its outputs."""
    lines = (Path(__file__).parent / "visual_genome.txt").read_text("utf-8").splitlines()
    names = " ".join(line or "," for line in lines if not line.startswith("#"))  # an empty line ends a list
    objects, attributes = (tuple(part.split(", ")) for part in names.split(" , "))
    return objects, attributes
