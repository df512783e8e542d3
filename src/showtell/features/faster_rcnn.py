"""The encoder `faster_rcnn`: one vector per detected object (bottom-up attention).

Papers: El Baz 2020 and the work it repeats, Anderson et al. 2018 (Bottom-Up and Top-Down Attention), §3.1.
Detector: Faster R-CNN of torchvision, trained on COCO. docs/features.md compares it with the papers' detector.

Regions of a photo, as in the authors' release: the region proposal network gives boxes, the box head gives each a
vector and a probability of each class, and regions are chosen by these (features/regions.py).

Where we differ:
1. The release keeps the proposals' own boxes; ours are refined by the detector for the class found (`refine: false` is
   the release). Two proposals of one object then coincide before regions are chosen, and overlays show the
   object's outline.
2. A vector is the output of the box head (1,024 numbers, from which the detector classifies); theirs is the mean of a
   convolution's 2,048 channels over the region.
3. Vectors are pooled at the very boxes that are reported, so that each vector saw what its box shows.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.features.quick_import import quick_import
from showtell.features.regions import DetectorConfig, ImageRegions, RegionEncoder, choose_regions, collect_regions
from showtell.features.weights import from_url, load_weights, read_weights, weights_path
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

Detector = Literal[
    "fasterrcnn_resnet50_fpn_v2",
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
]

_STRIDE = 32  # pixels of a prepared photo to a cell of a detector's coarsest map that regions are pooled from

Side = Annotated[Pixels, Field(ge=_STRIDE)]


class FasterRcnnConfig(DetectorConfig):
    """A detector of torchvision and which of its regions are kept."""

    name: Literal["faster_rcnn"] = "faster_rcnn"
    detector: Detector = Field("fasterrcnn_resnet50_fpn_v2", description="Name of the detector in torchvision.")
    weights: str = Field(
        "pretrained", description="`pretrained` (on COCO), `random`, or a file with the detector's state dict."
    )
    categories: tuple[str, ...] | None = Field(
        None, min_length=2, description="Class names of `weights`, background first (default: the 91 of COCO)."
    )
    image_size: Side | None = Field(None, description="Pixels of the shorter side (default: that of the detector).")
    longest: Side | None = Field(
        None, description="Maximum number of pixels of the longer side (default: that of the detector)."
    )
    min_regions: Size = Field(
        36, description="Minimum number of regions; equal to `max_regions` for a fixed number (paper, adaptive: 10)."
    )
    max_regions: Size = Field(36, description="Maximum number of regions (paper, adaptive: 100).")
    refine: bool = Field(
        True, description="Refine boxes by the box head; if false, regions are the proposals, as in the release."
    )


class FasterRcnn(RegionEncoder):
    """The box head's vectors of detected regions. Each photo passes alone, padded to whole cells."""

    config: FasterRcnnConfig

    def __init__(self, config: FasterRcnnConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        published = quick_import("torchvision.models").get_model_weights(config.detector).DEFAULT
        self.categories = config.categories or tuple(published.meta["categories"])
        self.detector = _build_detector(config, len(self.categories))
        if load_weights and config.weights != "random":
            _load_detector(self.detector, config, published.url)
        self.detector.eval()
        self.detector.backbone.to(memory_format=torch.channels_last)  # on a CPU a third faster than rows of pixels
        transform = self.detector.transform
        shorter = config.image_size or transform.min_size[0]
        self.preprocessing = Preprocessing(
            image_size=shorter,
            resize="fit",
            longest=config.longest or max(shorter, transform.max_size),
            interpolation="bilinear",
            mean=transform.image_mean,
            deviation=transform.image_std,
        )
        self.feature_size = self.detector.roi_heads.box_predictor.cls_score.in_features

    @torch.no_grad()
    def forward(self, batch: PreparedBatch) -> Features:
        """The regions of each photo, best first. A photo without a proposal is one region."""
        return collect_regions([self._regions(image) for image in batch.images], batch)

    def _regions(self, image: Tensor) -> ImageRegions:
        """The regions of a photo (3, height, width), in its pixels."""
        height, width = image.shape[-2:]
        normalised = self.preprocessing.normalise(image)
        padded = F.pad(normalised, (0, -width % _STRIDE, 0, -height % _STRIDE)).unsqueeze(0)
        maps = self.detector.backbone(padded.to(memory_format=torch.channels_last))
        heads, size = self.detector.roi_heads, tuple(padded.shape[-2:])

        def vectors_of(boxes: Tensor) -> Tensor:
            """The box head's output (n, 1024); the scales of the maps come out exact for the padded size."""
            vectors: Tensor = heads.box_head(heads.box_roi_pool(maps, [boxes], [size]))
            return vectors

        photos = quick_import("torchvision.models.detection.image_list").ImageList(padded, [(height, width)])
        (proposals,), _ = self.detector.rpn(photos, maps)
        if not len(proposals):
            proposals = proposals.new_tensor([[0, 0, width, height]])
        logits, deltas = heads.box_predictor(vectors_of(proposals))
        if self.config.refine:
            by_class = heads.box_coder.decode(deltas, [proposals])  # (n, classes, 4)
        else:
            by_class = proposals.unsqueeze(1).expand(-1, logits.shape[-1], -1)
        by_class = quick_import("torchvision.ops").clip_boxes_to_image(by_class, (height, width))[:, 1:]
        chosen, best, labels = choose_regions(by_class, logits.softmax(-1)[:, 1:], self.config)
        boxes = torch.where((labels > 0).unsqueeze(-1), by_class[chosen, labels - 1], proposals[chosen])
        return ImageRegions(vectors_of(boxes), boxes, best, labels)


def _build_detector(config: FasterRcnnConfig, classes: int) -> Any:
    """The detector, a FasterRCNN of torchvision with random weights."""
    detector = getattr(quick_import("torchvision.models.detection"), config.detector)(
        weights=None,
        weights_backbone=None,
        num_classes=classes,
        rpn_post_nms_top_n_test=config.proposals,
        rpn_score_thresh=0.0,  # an empty photo still needs the minimum number of regions
    )
    if config.detector == "fasterrcnn_resnet50_fpn":  # trained elsewhere with this; torchvision does the same
        for module in detector.backbone.body.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 0.0
    return detector


def _load_detector(detector: nn.Module, config: FasterRcnnConfig, url: str) -> None:
    """Put the weights that the settings name into a detector; heads of a Mask or Keypoint R-CNN are left out."""
    file = from_url(url) if config.weights == "pretrained" else weights_path(config.weights)
    tensors = {}
    for name, tensor in read_weights(file).items():  # those that torchvision publishes have its names before 0.13
        name = re.sub(r"((?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2", name)
        tensors[re.sub(r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2", name)] = tensor
    unused = [f"roi_heads.{kind}_{part}." for kind in ("mask", "keypoint") for part in ("head", "predictor")]
    load_weights(detector, tensors, source=str(file), name=config.detector, unused=unused)
