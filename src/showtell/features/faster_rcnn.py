"""The encoder `faster_rcnn`: one vector per detected object (bottom-up attention).

Papers: papers/001 and the work it repeats, Anderson et al. 2018 (Bottom-Up and Top-Down Attention), §3.1.
Detector: Faster R-CNN of torchvision, trained on COCO. docs/detectors.md compares it with the papers' detector.

Regions of a photo, as in the authors' release: the region proposal network gives boxes, the box head gives each a
vector and a probability of each class, and regions are chosen by these (features/choosing.py).

Where we differ:
1. The release keeps the proposals' own boxes; ours are refined by the detector for the class found (`refine: false` is
   the release). Two proposals of one object then fall together before regions are chosen, and overlays show the
   object's outline.
2. A vector is the box head's output (1,024 numbers, what the detector itself decides by) where theirs is the mean of a
   convolution's 2,048 channels over the region.
3. Vectors are pooled at the very boxes that are reported, so that each vector saw what its box shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.features.choosing import DetectorConfig, boxes_of, choose_regions
from showtell.features.contract import group_by_shape
from showtell.features.quick_import import quick_import
from showtell.features.regions import ImageRegions, RegionEncoder, collect_regions
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
    """The box head's vectors of what a detector finds; photos are padded to whole cells of its coarsest map."""

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
        """The regions of each photo, best first."""
        images = batch.images
        regions: dict[int, ImageRegions] = {}
        for indices in group_by_shape([_padded_size(size) for size in batch.sizes], images[0].device):
            regions.update(zip(indices, self._regions([images[index] for index in indices]), strict=True))
        return collect_regions([regions[index] for index in range(len(batch))], batch)

    def _regions(self, images: Sequence[Tensor]) -> list[ImageRegions]:
        """The regions of photos that share a pass, in pixels of the images."""
        sizes = [(image.shape[-2], image.shape[-1]) for image in images]
        height, width = _padded_size(sizes[0])
        padded = [
            F.pad(self.preprocessing.normalise(image), (0, width - image.shape[-1], 0, height - image.shape[-2]))
            for image in images
        ]
        photos = quick_import("torchvision.models.detection.image_list").ImageList(
            torch.stack(padded).to(memory_format=torch.channels_last), sizes
        )
        maps = self.detector.backbone(photos.tensors)
        detected = self._detect(photos, maps)
        boxes = [part[0] for part in detected]
        vectors = torch.split(self._vectors(boxes, maps, photos), [len(part) for part in boxes])
        return [ImageRegions(part, *rest) for part, rest in zip(vectors, detected, strict=True)]

    def _vectors(self, boxes: list[Tensor], maps: dict[str, Tensor], photos: Any) -> Tensor:
        """The box head's output (n, 1024) of all boxes, photo after photo."""
        heads = self.detector.roi_heads
        # The pooling derives the scales of its maps from the first size that it is given; for the padded one, they are
        # exact.
        size = tuple(photos.tensors.shape[-2:])
        vectors: Tensor = heads.box_head(heads.box_roi_pool(maps, boxes, [size] * len(boxes)))
        return vectors

    def _detect(self, photos: Any, maps: dict[str, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Boxes (r, 4), scores (r,) and labels (r,) of each photo's regions, best first; `photos` are an ImageList."""
        clip_boxes_to_image = quick_import("torchvision.ops").clip_boxes_to_image
        proposals, _ = self.detector.rpn(photos, maps)
        for index, (height, width) in enumerate(photos.image_sizes):
            if not len(proposals[index]):
                proposals[index] = proposals[index].new_tensor([[0, 0, width, height]])
        logits, deltas = self.detector.roi_heads.box_predictor(self._vectors(proposals, maps, photos))
        if self.config.refine:
            refined = self.detector.roi_heads.box_coder.decode(deltas, proposals)  # (n, classes, 4)
        else:
            refined = torch.cat(proposals).unsqueeze(1).expand(-1, logits.shape[-1], -1)
        counts = [len(own) for own in proposals]
        detected = []
        parts = zip(proposals, refined.split(counts), logits.softmax(-1).split(counts), photos.image_sizes, strict=True)
        for unrefined, boxes, scores, size in parts:
            by_class = clip_boxes_to_image(boxes, size)[:, 1:]
            chosen, best, labels = choose_regions(by_class, scores[:, 1:], self.config)
            detected.append((boxes_of(by_class, unrefined, chosen, labels), best, labels))
        return detected


def _padded_size(size: tuple[int, int]) -> tuple[int, int]:
    """(height, width), padded to whole cells of the coarsest map."""
    height, width = size
    return (-(-height // _STRIDE) * _STRIDE, -(-width // _STRIDE) * _STRIDE)


def _build_detector(config: FasterRcnnConfig, classes: int) -> Any:
    """The detector, a FasterRCNN of torchvision with random weights."""
    detector = getattr(quick_import("torchvision.models.detection"), config.detector)(
        weights=None,
        weights_backbone=None,
        num_classes=classes,
        rpn_post_nms_top_n_test=config.proposals,
        rpn_score_thresh=0.0,  # a photo without anything to see still needs its least number of regions
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
