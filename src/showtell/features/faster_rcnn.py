"""The encoder `faster_rcnn`: one vector per detected object (bottom-up attention), or per box of the dataset.

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
from typing import TYPE_CHECKING, Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import RecipeError, UsageError
from showtell.features.choosing import DetectorConfig, boxes_of, choose_regions
from showtell.features.contract import group_by_shape
from showtell.features.quick_import import without_compiler
from showtell.features.regions import ImageRegions, RegionEncoder, collect_regions
from showtell.features.weights import from_url, load_weights, read_weights, weights_path
from showtell.images.boxes import boxes_on_image
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

if TYPE_CHECKING:
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.image_list import ImageList

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
    boxes: Literal["detected", "dataset", "dataset_or_detected"] = Field(
        "detected",
        description="`detected` uses the detector's boxes, `dataset` those of the dataset, `dataset_or_detected` those "
        "of the dataset where it has some.",
    )
    whole_photo: bool = Field(False, description="Add the whole photo as a region behind the dataset's boxes.")
    min_regions: Size = Field(
        36, description="Minimum number of regions; equal to `max_regions` for a fixed number (paper, adaptive: 10)."
    )
    max_regions: Size = Field(36, description="Maximum number of regions (paper, adaptive: 100).")
    refine: bool = Field(
        True, description="Refine boxes by the box head; if false, regions are the proposals, as in the release."
    )

    @model_validator(mode="after")
    def _needs_boxes_of_the_dataset(self) -> Self:
        if self.whole_photo and self.boxes == "detected":
            raise ValueError("whole_photo goes with boxes=dataset or boxes=dataset_or_detected")
        return self


class FasterRcnn(RegionEncoder):
    """The box head's vectors of what a detector finds, or of boxes that are given.

    Photos go through the network together if their images are of one size once padded to whole cells of the
    coarsest map. Others do not: the zeros beyond a photo's edge reach into it through the convolutions, so that its
    vectors would depend on its company. On a CPU every photo goes alone, which is no slower.
    """

    config: FasterRcnnConfig

    def __init__(self, config: FasterRcnnConfig, load_weights: bool) -> None:
        from torchvision.models import get_model_weights  # slow to import

        super().__init__()
        self.config = config
        self.takes_boxes = config.boxes != "detected"
        self.categories = config.categories or tuple(get_model_weights(config.detector).DEFAULT.meta["categories"])
        self.detector = _build_detector(config, len(self.categories))
        if load_weights and config.weights != "random":
            _load_detector(self.detector, config)
        self.detector.eval()
        self.detector.backbone.to(memory_format=torch.channels_last)  # on a CPU a third faster than rows of pixels
        transform = self.detector.transform
        shorter = config.image_size or transform.min_size[0]
        if config.longest is not None and config.longest < shorter:
            raise RecipeError(
                f"encoder.longest={config.longest} is less than the shorter side of a photo (encoder.image_size, here "
                f"{shorter}): raise it, or lower image_size."
            )
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
        """The regions of each photo: detected ones best first, given boxes in their own order.

        Scores and labels are the detector's, of given boxes too. Which boxes are looked at is what
        `FasterRcnnConfig.boxes` says. Those that the image does not show are left out; where none is left, the whole
        photo is the region.

        Raises:
            UsageError: the boxes of a dataset are needed and there are none.
        """
        if batch.boxes is None and self.config.boxes == "dataset":
            raise UsageError(
                "This model looks at boxes that its dataset brings (encoder.boxes=dataset), and a photo on its own has "
                'none: caption images of a dataset with boxes, or write "boxes": "dataset_or_detected" in the encoder '
                "section of the checkpoint's config.json, so that its detector looks for them."
            )
        images, sizes = batch.images, batch.sizes
        given: list[Tensor | None] = [None] * len(batch)
        if batch.boxes is not None and self.takes_boxes:
            for index, own in enumerate(batch.boxes):
                if len(own) or self.config.boxes == "dataset":
                    given[index] = boxes_on_image(own, batch.windows[index], sizes[index], self.config.whole_photo)
        regions: dict[int, ImageRegions] = {}
        # a pass is either searched or has its boxes given
        shapes = [(*_padded_size(size), int(own is None)) for size, own in zip(sizes, given, strict=True)]
        for indices in group_by_shape(shapes, images[0].device):
            boxes = [box for index in indices if (box := given[index]) is not None]
            of_pass = self._regions([images[index] for index in indices], boxes)
            regions.update(zip(indices, of_pass, strict=True))
        return collect_regions([regions[index] for index in range(len(batch))], batch)

    def _regions(self, images: Sequence[Tensor], boxes: list[Tensor]) -> list[ImageRegions]:
        """The regions of photos that share a pass, in pixels of the images; without boxes they are searched."""
        from torchvision.models.detection.image_list import ImageList

        sizes = [(image.shape[-2], image.shape[-1]) for image in images]
        height, width = _padded_size(sizes[0])
        normalised = [self.preprocessing.normalise(image) for image in images]
        padded = [F.pad(one, (0, width - one.shape[-1], 0, height - one.shape[-2])) for one in normalised]
        photos = ImageList(torch.stack(padded).to(memory_format=torch.channels_last), sizes)
        maps = self.detector.backbone(photos.tensors)
        if boxes:
            vectors = self._vectors(boxes, maps, photos)
            logits, _ = self.detector.roi_heads.box_predictor(vectors)
            scores, labels = logits.softmax(-1)[:, 1:].max(-1)
            labels = labels + 1  # 0 is the background
        else:
            detected = self._detect(photos, maps)
            boxes = [own for own, _, _ in detected]
            scores, labels = (torch.cat([own[part] for own in detected]) for part in (1, 2))
            vectors = self._vectors(boxes, maps, photos)
        vectors_of, scores_of, labels_of = (
            part.split([len(own) for own in boxes]) for part in (vectors, scores, labels)
        )
        return [ImageRegions(*part) for part in zip(vectors_of, boxes, scores_of, labels_of, strict=True)]

    def _vectors(self, boxes: list[Tensor], maps: dict[str, Tensor], photos: ImageList) -> Tensor:
        """The box head's output (n, 1024) of all boxes, photo after photo.

        The pooling derives the scales of its maps from the sizes that it is given first and keeps them, so it is given
        the padded size, for which they come out exact.
        """
        heads, (height, width) = self.detector.roi_heads, photos.tensors.shape[-2:]
        vectors: Tensor = heads.box_head(heads.box_roi_pool(maps, boxes, [(height, width)] * len(boxes)))
        return vectors

    def _detect(self, photos: ImageList, maps: dict[str, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Boxes (r, 4), scores (r,) and labels (r,) of each photo's regions, best first."""
        from torchvision.ops import clip_boxes_to_image

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


def _build_detector(config: FasterRcnnConfig, classes: int) -> FasterRCNN:
    """The detector with random weights."""
    with without_compiler():
        from torchvision.models import detection

    detector = getattr(detection, config.detector)(
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


def _load_detector(detector: FasterRCNN, config: FasterRcnnConfig) -> None:
    """Put the weights that the settings name into a detector; heads of a Mask or Keypoint R-CNN are left out."""
    from torchvision.models import get_model_weights

    is_named = config.weights == "pretrained"
    file = from_url(get_model_weights(config.detector).DEFAULT.url) if is_named else weights_path(config.weights)
    tensors = {}
    for name, tensor in read_weights(file).items():  # those that torchvision publishes have its names before 0.13
        name = re.sub(r"((?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2", name)
        tensors[re.sub(r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2", name)] = tensor
    unused = [f"roi_heads.{kind}_{part}." for kind in ("mask", "keypoint") for part in ("head", "predictor")]
    load_weights(detector, tensors, source=str(file), name=config.detector, unused=unused)
