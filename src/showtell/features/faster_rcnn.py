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
   convolution's 2,048 channels over the region; `vector: pooled` is that mean over the pyramid's map (256).
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
from showtell.features.choosing import choose_regions
from showtell.features.contract import EncoderConfig
from showtell.features.passes import group_by_shape
from showtell.features.quick_import import without_compiler
from showtell.features.regions import ImageRegions, RegionEncoder, collect_regions
from showtell.features.weights import from_url, read_weights, weights_path
from showtell.features.weights import load_weights as fit_weights
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


class FasterRcnnConfig(EncoderConfig):
    """A detector of torchvision and which of its regions are kept."""

    name: Literal["faster_rcnn"] = "faster_rcnn"
    trained: Literal[False] = Field(False, description="A detector is always frozen, as in the paper.")
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
    score_threshold: float = Field(
        0.2, ge=0, le=1, description="Minimum class probability of regions beyond `min_regions`."
    )
    nms_threshold: float = Field(
        0.3, gt=0, le=1, description="Intersection over union above which non-maximum suppression drops a box."
    )
    refine: bool = Field(
        True, description="Refine boxes by the box head; if false, regions are the proposals, as in the release."
    )
    proposals: Size = Field(300, description="Number of proposals that are classified (torchvision: up to 1,000).")
    vector: Literal["box_head", "pooled"] = Field(
        "box_head", description="Feature vector of a region: output of the box head, or mean of its pooled feature map."
    )

    @model_validator(mode="after")
    def _counts(self) -> Self:
        if not self.min_regions <= self.max_regions <= self.proposals:
            raise ValueError(
                f"min_regions={self.min_regions} must not be above max_regions={self.max_regions}, "
                f"nor that above proposals={self.proposals}"
            )
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
        if load_weights:
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
        hidden = self.detector.roi_heads.box_predictor.cls_score.in_features
        self.feature_size = hidden if config.vector == "box_head" else self.detector.backbone.out_channels

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
            of_pass = self._regions([images[index] for index in indices], [given[index] for index in indices])
            regions.update(zip(indices, of_pass, strict=True))
        return collect_regions([regions[index] for index in range(len(batch))], batch)

    def _regions(self, images: Sequence[Tensor], given: Sequence[Tensor | None]) -> list[ImageRegions]:
        """The regions of photos that share a pass, with boxes in pixels of the images."""
        height, width = padded = _padded_size((images[0].shape[-2], images[0].shape[-1]))
        pixels = torch.stack(
            [
                F.pad(self.preprocessing.normalise(image), (0, width - image.shape[-1], 0, height - image.shape[-2]))
                for image in images
            ]
        ).to(memory_format=torch.channels_last)
        maps = self.detector.backbone(pixels)
        boxes = [own for own in given if own is not None]
        if boxes:
            pooled, hidden = self._pool(boxes, maps, padded)
            logits, _ = self.detector.roi_heads.box_predictor(hidden)
            scores, labels = logits.softmax(-1)[:, 1:].max(-1)
            labels = labels + 1  # 0 is the background
        else:
            from torchvision.models.detection.image_list import ImageList

            detected = self._detect(ImageList(pixels, [(image.shape[-2], image.shape[-1]) for image in images]), maps)
            boxes = [own for own, _, _ in detected]
            scores = torch.cat([own for _, own, _ in detected])
            labels = torch.cat([own for _, _, own in detected])
            pooled, hidden = self._pool(boxes, maps, padded)
        vectors = hidden if self.config.vector == "box_head" else pooled.mean((-2, -1))
        counts = [len(own) for own in boxes]
        vectors_of, scores_of, labels_of = (torch.split(own, counts) for own in (vectors, scores, labels))
        parts = zip(vectors_of, boxes, scores_of, labels_of, strict=True)
        return [ImageRegions(*part) for part in parts]

    def _pool(self, boxes: list[Tensor], maps: dict[str, Tensor], padded: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The pooled maps (n, C, 7, 7) and the box head's output (n, 1024) of all boxes, photo after photo.

        The pooling derives the scales of its maps from the sizes that it is given first and keeps them, so it is given
        the padded size, for which they come out exact.
        """
        heads = self.detector.roi_heads
        pooled = heads.box_roi_pool(maps, boxes, [padded] * len(boxes))
        return pooled, heads.box_head(pooled)

    def _detect(self, images: ImageList, maps: dict[str, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Boxes (r, 4), scores (r,) and labels (r,) of each photo's regions, best first."""
        from torchvision.ops import clip_boxes_to_image

        proposals, _ = self.detector.rpn(images, maps)
        for index, (height, width) in enumerate(images.image_sizes):
            if not len(proposals[index]):
                proposals[index] = proposals[index].new_tensor([[0, 0, width, height]])
        _, hidden = self._pool(proposals, maps, tuple(images.tensors.shape[-2:]))
        logits, deltas = self.detector.roi_heads.box_predictor(hidden)
        counts = [len(own) for own in proposals]
        if self.config.refine:
            refined = self.detector.roi_heads.box_coder.decode(deltas, proposals)  # (n, classes, 4)
        else:
            refined = torch.cat(proposals).unsqueeze(1).expand(-1, logits.shape[-1], -1)
        detected = []
        parts = zip(proposals, refined.split(counts), logits.softmax(-1).split(counts), images.image_sizes, strict=True)
        for unrefined, by_class, scores, size in parts:
            by_class = clip_boxes_to_image(by_class, size)
            chosen, best, labels = choose_regions(
                by_class[:, 1:],
                scores[:, 1:],
                nms_threshold=self.config.nms_threshold,
                score_threshold=self.config.score_threshold,
                minimum=self.config.min_regions,
                maximum=self.config.max_regions,
            )
            is_named = labels >= 0
            labels = torch.where(is_named, labels + 1, labels)  # 0 is the background
            boxes = torch.where(is_named.unsqueeze(-1), by_class[chosen, labels], unrefined[chosen])
            detected.append((boxes, best, labels))
        return detected


def _padded_size(size: tuple[int, int]) -> tuple[int, int]:
    """(height, width), padded to whole cells of the coarsest map."""
    height, width = size
    return (-(-height // _STRIDE) * _STRIDE, -(-width // _STRIDE) * _STRIDE)


# --- building detectors ---


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
    """Put the weights that the settings name into a detector.

    Raises:
        WeightsError: they cannot be found or read, or are another detector's.
    """
    if config.weights == "random":
        return
    if config.weights == "pretrained":
        from torchvision.models import get_model_weights

        file = from_url(get_model_weights(config.detector).DEFAULT.url)
    else:
        file = weights_path(config.weights)
    tensors = {_current_name(name): tensor for name, tensor in read_weights(file).items()}
    fit_weights(detector, tensors, source=str(file), name=config.detector, unused=_OTHER_HEADS)


# Of Mask R-CNN and Keypoint R-CNN, which are this detector with a further head.
_OTHER_HEADS = tuple(f"roi_heads.{kind}_{part}." for kind in ("mask", "keypoint") for part in ("head", "predictor"))


def _current_name(name: str) -> str:
    """A tensor's name as torchvision has it since 0.13; the files that it publishes are older."""
    name = re.sub(r"((?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2", name)
    return re.sub(r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2", name)
