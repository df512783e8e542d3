"""The encoder `bottom_up`: the regions of bottom-up attention (Anderson et al., 2018), from a photo.

Captioners that were trained on the features of the authors' release look through this detector
(features/bottom_up_detector.py), whose weights were converted from Caffe. Regions are those of the release's
tools/generate_tsv.py: the boxes of the proposals, chosen as features/regions.py has it, 10 to 100 of a photo.

Where we differ from the release:
1. A photo is resized by Pillow, in whole numbers and smoothed where it shrinks, before the mean is subtracted; the
   release subtracts first and does not smooth. Photos of COCO grow, for which both are the same up to rounding.
2. Regions come best first. A region's class is that to which suppression left it, as its score is; the release's demo
   names the most likely class, whatever suppression said.
3. Proposals are ranked by the difference of their two scores, not by its softmax, which rounds great ones to 1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from showtell.config import Pixels
from showtell.errors import WeightsError
from showtell.features.bottom_up_detector import FEATURE_SIZE, STRIDE, BottomUpDetector, cover_pixels, load_detector
from showtell.features.regions import DetectorConfig, ImageRegions, RegionEncoder, choose_regions, collect_regions
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
    attribute_threshold: float = Field(
        0.1, ge=0, le=1, description="Minimum probability of an attribute that is named (release: 0.1)."
    )
    image_size: Side = Field(600, description="Pixels of the shorter side.")
    longest: Side = Field(1000, description="Maximum number of pixels of the longer side.")


class BottomUp(RegionEncoder):
    """What the detector of bottom-up attention finds; each photo in its own size, alone."""

    config: BottomUpConfig
    feature_size = FEATURE_SIZE

    def __init__(self, config: BottomUpConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        if load_weights and config.weights == "pretrained":
            raise WeightsError(
                "The weights of bottom_up cannot be fetched by name: take bua-caffe-frcn-r101-k10-100.pth from the "
                "table of https://github.com/MILVLG/bottom-up-attention.pytorch and give that file as the weights "
                "(encoder.weights=FILE)."
            )
        self.detector = BottomUpDetector()
        if load_weights and config.weights != "random":
            load_detector(self.detector, weights_path(config.weights))
        self.detector.to(memory_format=torch.channels_last)
        objects, self.attributes = visual_genome_names()
        self.categories = ("__background__", *objects)
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
        photos = zip(batch.images, batch.windows, batch.sizes, strict=True)
        return collect_regions([self._regions(*photo) for photo in photos], batch)

    def _regions(self, image: Tensor, window: Tensor, size: tuple[int, int]) -> ImageRegions:
        """The regions of an image (3, height, width) that shows a window (4,) of its photo."""
        height, width = size
        scale = width / float(window[2] - window[0])
        pixels = self.preprocessing.normalise(image).flip(0).unsqueeze(0)  # blue first
        maps = self.detector.maps(pixels.to(memory_format=torch.channels_last))
        proposals = self.detector.propose(maps, size, scale, self.config.proposals)
        if not len(proposals):
            proposals = maps.new_tensor([[0, 0, width - 1, height - 1]])
        vectors = self.detector.vectors(maps, proposals)
        logits = self.detector.cls_score(vectors)
        scores = logits.softmax(-1)[:, 1:]
        on_photo = cover_pixels(boxes_on_photo(proposals, window, size))  # where the release measures overlaps
        by_class = on_photo.unsqueeze(1).expand(-1, scores.shape[-1], -1)
        chosen, best, labels = choose_regions(by_class, scores, self.config)
        probabilities, attributes = self.detector.attribute_probabilities(vectors[chosen], logits[chosen])[:, 1:].max(
            -1
        )
        attributes = torch.where(probabilities >= self.config.attribute_threshold, attributes, -1)
        return ImageRegions(vectors[chosen], proposals[chosen], best, labels, attributes)


@cache
def visual_genome_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the 1,600 objects and 400 attributes that the detector knows, in the order of its outputs."""
    lines = (Path(__file__).parent / "visual_genome.txt").read_text("utf-8").splitlines()
    names = " ".join(line or "," for line in lines if not line.startswith("#"))  # an empty line ends a list
    objects, attributes = (tuple(part.split(", ")) for part in names.split(" , "))
    return objects, attributes
