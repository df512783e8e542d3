"""Region features: one vector per detected object (bottom-up attention), or per box that the dataset brings.

Papers: papers/001 and the work it repeats, Anderson et al. 2018 (Bottom-Up and Top-Down Attention), §3.1.
Detector: Faster R-CNN of torchvision, trained on COCO. docs/regions.md says how that differs from the papers' detector.

Regions of a photo, as in the authors' release:
1. the region proposal network gives boxes; the box head gives each a vector and a probability of each class;
2. non-maximum suppression within each class (overlap 0.3) leaves a box to a class or takes it away;
3. the score of a box is its greatest probability of a class that it was left to;
4. boxes whose score reaches 0.2 are regions, but at least `least_regions` and at most `most_regions`, best first.

Where we differ:
1. The release keeps the proposals' own boxes; ours are refined by the detector for the class found (`refine: false` is
   the release). Two proposals of one object then fall together in step 2, and overlays show the object's outline.
2. A vector is the box head's output (1,024 numbers, what the detector itself decides by) where theirs is the mean of a
   convolution's 2,048 channels over the region; `vector: pooled` is that mean over the pyramid's map (256).
3. Vectors are pooled at the very boxes that are reported, so that each vector saw what its box shows.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, SerializeAsAny, ValidationError, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torchvision.models import detection, get_model_weights
from torchvision.models.detection.image_list import ImageList
from torchvision.ops import batched_nms, clip_boxes_to_image, roi_align

from showtell.config import Pixels, Size
from showtell.errors import CheckpointError, RecipeError, UsageError
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.weights import from_url, read_weights
from showtell.features.weights import load_weights as fit_weights
from showtell.images.boxes import MIN_SIDE, boxes_on_image, boxes_on_photo
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch, Regions

Detector = Literal[
    "fasterrcnn_resnet50_fpn_v2",
    "fasterrcnn_resnet50_fpn",
    "fasterrcnn_mobilenet_v3_large_fpn",
    "fasterrcnn_mobilenet_v3_large_320_fpn",
]

_STRIDE = 32  # pixels of a prepared photo to a cell of a detector's coarsest map that regions are pooled from
_SAMPLES = 8  # bilinear samples along each side of a box over a grid encoder's map
_PIXELS_AT_ONCE = 8 * 800 * 1344  # of one pass on a GPU, whatever the batch: it bounds the memory

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
    least_regions: Size = Field(
        36, description="Minimum number of regions; equal to `most_regions` for a fixed number (paper, adaptive: 10)."
    )
    most_regions: Size = Field(36, description="Maximum number of regions (paper, adaptive: 100).")
    least_score: float = Field(
        0.2, ge=0, le=1, description="Minimum class probability of regions beyond `least_regions`."
    )
    overlap: float = Field(
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
        if not self.least_regions <= self.most_regions <= self.proposals:
            raise ValueError(
                f"least_regions={self.least_regions} must not be above most_regions={self.most_regions}, "
                f"nor that above proposals={self.proposals}"
            )
        if self.whole_photo and self.boxes == "detected":
            raise ValueError("whole_photo goes with boxes=dataset or boxes=dataset_or_detected")
        return self


class RoiGridConfig(EncoderConfig):
    """A grid encoder whose map is pooled at the boxes that the dataset brings. It learns as its backbone says."""

    name: Literal["roi_grid"] = "roi_grid"
    backbone: SerializeAsAny[EncoderConfig] = Field(
        description="The grid encoder and its settings: `small_cnn` or a backbone of timm."
    )
    whole_photo: bool = Field(False, description="Add the whole photo as a region behind the boxes.")

    @field_validator("backbone", mode="before")
    @classmethod
    def _by_name(cls, content: Any) -> Any:
        from showtell.features import encoder_config  # the registry, which imports this file

        return encoder_config(content) if isinstance(content, dict) else content

    @model_validator(mode="before")
    @classmethod
    def _learns_as_its_backbone(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        try:
            backbone = cls._by_name(content.get("backbone"))
        except ValidationError:
            return content  # its own validator tells what is wrong with it
        if not isinstance(backbone, EncoderConfig):
            return content
        shared = {"trained": bool(backbone.trained), "learning_rate": backbone.learning_rate}
        for key, value in shared.items():
            if content.get(key, value) != value:
                raise ValueError(f"{key} is set within backbone, which is all that learns here")
        return {**content, **shared}


class PrecomputedConfig(EncoderConfig):
    """Features that another program computed: only their size and where they come from is known."""

    name: Literal["precomputed"] = "precomputed"
    trained: Literal[False] = Field(False, description="Precomputed features are always frozen.")
    feature_size: int = Field(ge=1, le=2**20, description="Numbers of each feature vector.")
    source: str = Field(min_length=1, description="Where the features come from, for people: a file, project or URL.")


class RegionEncoder(Encoder, abc.ABC):
    """An encoder whose vectors belong to boxes, which it reports in `Features.regions`."""

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The boxes of the regions."""
        assert features.regions is not None
        return features.regions.boxes


class FasterRcnn(RegionEncoder):
    """The box head's vectors of what a detector finds, or of boxes that are given.

    Photos go through the network together if their images are of one size once filled up to whole cells of the
    coarsest map. Others do not: the zeros beyond a photo's edge reach into it through the convolutions, so that its
    vectors would depend on its company. On a CPU every photo goes alone, which is no slower.
    """

    config: FasterRcnnConfig

    def __init__(self, config: FasterRcnnConfig, load_weights: bool) -> None:
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
        for indices in self._passes(sizes, given, images[0].device):
            of_pass = self._regions([images[index] for index in indices], [given[index] for index in indices])
            regions.update(zip(indices, of_pass, strict=True))
        return collect_regions([regions[index] for index in range(len(batch))], batch)

    def _passes(
        self, sizes: Sequence[tuple[int, int]], given: Sequence[Tensor | None], device: torch.device
    ) -> Iterator[list[int]]:
        """Which photos go through the network together: of one size, and either all to be searched or none."""
        alike: dict[tuple[int, int, bool], list[int]] = {}
        for place, size in enumerate(sizes):
            alike.setdefault((*_filled_up(size), given[place] is None), []).append(place)
        for (height, width, _), places in alike.items():
            together = 1 if device.type == "cpu" else max(1, _PIXELS_AT_ONCE // (height * width))
            yield from (places[first : first + together] for first in range(0, len(places), together))

    def _regions(self, images: Sequence[Tensor], given: Sequence[Tensor | None]) -> list[ImageRegions]:
        """The regions of photos that share a pass, with boxes in pixels of the images."""
        height, width = filled = _filled_up((images[0].shape[-2], images[0].shape[-1]))
        pixels = torch.stack(
            [
                F.pad(self.preprocessing.normalise(image), (0, width - image.shape[-1], 0, height - image.shape[-2]))
                for image in images
            ]
        ).to(memory_format=torch.channels_last)
        maps = self.detector.backbone(pixels)
        boxes = [own for own in given if own is not None]
        if boxes:
            pooled, hidden = self._look_at(boxes, maps, filled)
            odds, _ = self.detector.roi_heads.box_predictor(hidden)
            scores, labels = odds.softmax(-1)[:, 1:].max(-1)
            labels = labels + 1  # 0 is the background
        else:
            detected = self._detect(ImageList(pixels, [(image.shape[-2], image.shape[-1]) for image in images]), maps)
            boxes = [own for own, _, _ in detected]
            scores = torch.cat([own for _, own, _ in detected])
            labels = torch.cat([own for _, _, own in detected])
            pooled, hidden = self._look_at(boxes, maps, filled)
        vectors = hidden if self.config.vector == "box_head" else pooled.mean((-2, -1))
        counts = [len(own) for own in boxes]
        parts = zip(vectors.split(counts), boxes, scores.split(counts), labels.split(counts), strict=True)
        return [ImageRegions(*part) for part in parts]

    def _look_at(self, boxes: list[Tensor], maps: dict[str, Tensor], filled: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The pooled maps (n, C, 7, 7) and the box head's output (n, 1024) of all boxes, photo after photo.

        The pooling derives the scales of its maps from the sizes that it is given first and keeps them, so it is given
        the filled-up size, for which they come out exact.
        """
        heads = self.detector.roi_heads
        pooled = heads.box_roi_pool(maps, boxes, [filled] * len(boxes))
        return pooled, heads.box_head(pooled)

    def _detect(self, images: ImageList, maps: dict[str, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Boxes (r, 4), scores (r,) and labels (r,) of each photo's regions, best first."""
        proposals, _ = self.detector.rpn(images, maps)
        for place, (height, width) in enumerate(images.image_sizes):
            if not len(proposals[place]):
                proposals[place] = proposals[place].new_tensor([[0, 0, width, height]])
        _, hidden = self._look_at(proposals, maps, tuple(images.tensors.shape[-2:]))
        odds, changes = self.detector.roi_heads.box_predictor(hidden)
        counts = [len(own) for own in proposals]
        if self.config.refine:
            refined = self.detector.roi_heads.box_coder.decode(changes, proposals)  # (n, classes, 4)
        else:
            refined = torch.cat(proposals).unsqueeze(1).expand(-1, odds.shape[-1], -1)
        found = []
        parts = zip(proposals, refined.split(counts), odds.softmax(-1).split(counts), images.image_sizes, strict=True)
        for plain, by_class, scores, size in parts:
            by_class = clip_boxes_to_image(by_class, size)
            chosen, best, labels = choose_regions(
                by_class[:, 1:],
                scores[:, 1:],
                overlap=self.config.overlap,
                least_score=self.config.least_score,
                least=self.config.least_regions,
                most=self.config.most_regions,
            )
            is_named = labels >= 0
            labels = torch.where(is_named, labels + 1, labels)  # 0 is the background
            boxes = torch.where(is_named.unsqueeze(-1), by_class[chosen, labels], plain[chosen])
            found.append((boxes, best, labels))
        return found


class RoiGrid(RegionEncoder):
    """The mean of a grid encoder's map within each box: bottom-up attention with perfect boxes.

    The map is read between its cells (RoIAlign, He et al. 2017) at 8 x 8 places of each box, and the places averaged.
    """

    takes_boxes = True
    config: RoiGridConfig

    def __init__(self, config: RoiGridConfig, load_weights: bool) -> None:
        super().__init__()
        from showtell.features import build_encoder  # the registry, which imports this file

        self.config = config
        backbone = build_encoder(config.backbone, load_weights)
        if not isinstance(backbone, GridEncoder):
            raise RecipeError(
                "encoder.backbone of roi_grid is an encoder of grids, such as small_cnn or a backbone of timm; "
                f"{type(backbone).__name__} gives no grid."
            )
        self.backbone = backbone
        self.preprocessing = backbone.preprocessing
        self.feature_size = backbone.feature_size

    def forward(self, batch: PreparedBatch) -> Features:
        """A vector for each box, in the order of the boxes.

        Boxes that the image does not show are left out; where none is left, the whole photo is the region.

        Raises:
            UsageError: there are no boxes.
        """
        if batch.boxes is None:
            raise UsageError(
                "This model looks at boxes that its dataset brings (encoder.name=roi_grid), and a photo on its own has "
                "none: caption images of a dataset with boxes, or train with encoder.name=faster_rcnn, which finds "
                "its own."
            )
        sizes = batch.sizes
        shown = [
            boxes_on_image(own, window, size, self.config.whole_photo)
            for own, window, size in zip(batch.boxes, batch.windows, sizes, strict=True)
        ]
        grid = self.backbone(batch).vectors.float()
        rows, columns = self.backbone.grid_of(grid.shape[1])
        height, width = sizes[0]
        cells = grid.new_tensor([columns / width, rows / height] * 2)  # cells of the map for each pixel of the image
        vectors = roi_align(
            grid.transpose(1, 2).unflatten(2, (rows, columns)),
            [own * cells for own in shown],
            output_size=1,
            sampling_ratio=_SAMPLES,
            aligned=True,
        )
        parts = vectors.flatten(1).split([len(own) for own in shown])
        return collect_regions([ImageRegions(*part) for part in zip(parts, shown, strict=True)], batch)

    def parameter_groups(self) -> list[tuple[float | None, list[nn.Parameter]]]:
        """Those of the backbone."""
        return self.backbone.parameter_groups()


class Precomputed(Encoder):
    """The place of an encoder that is not at hand: features on disk were computed by a program that we do not have."""

    config: PrecomputedConfig

    def __init__(self, config: PrecomputedConfig) -> None:
        super().__init__()
        self.config = config
        self.feature_size = config.feature_size
        self.preprocessing = Preprocessing(  # of no consequence: no photo gets further than `forward`
            image_size=224, resize="squash", interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
        )

    def forward(self, batch: PreparedBatch) -> Features:
        """Refuses.

        Raises:
            CheckpointError: always; the message says what to do.
        """
        raise CheckpointError(
            f"This model was trained on features from {self.config.source}, which were computed elsewhere, so it "
            "cannot look at a photo: caption images whose features are in a store (evaluate --features STORE), or "
            "train with an encoder of ours (encoder.name=faster_rcnn), which travels with the checkpoint."
        )

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The boxes that came with the features.

        Raises:
            CheckpointError: there were none.
        """
        if features.regions is None:
            raise CheckpointError(
                f"The features from {self.config.source} came without boxes, so it is not known which pixels they saw."
            )
        return features.regions.boxes


# --- choosing regions ---


def choose_regions(
    boxes: Tensor, scores: Tensor, *, overlap: float, least_score: float, least: int, most: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Which of a detector's boxes are regions, as bottom-up attention chooses them (see the head of this file).

    Args:
        boxes: (n, C, 4) corners of n boxes, as they are for each of C classes.
        scores: (n, C) probability of each class, without the background.
        overlap: intersection over union above which non-maximum suppression drops the weaker box of a class.
        least_score: which regions beyond the least number have.
        least: so many regions, whatever their scores; all n if there are fewer.
        most: regions at most.

    Returns:
        Of the regions, best first: (r,) which of the n boxes, (r,) its score, (r,) its class; a box that every class
        dropped has score 0 and class -1, and comes last.
    """
    is_box = ((boxes[..., 2:] - boxes[..., :2]) >= MIN_SIDE).all(-1)
    # Weaker boxes never drop stronger ones, so those below a floor need no suppression as long as enough stand above.
    for floor in (least_score, least_score / 20, 0.0):
        place, label = torch.where(is_box & (scores >= floor))
        kept = batched_nms(boxes[place, label], scores[place, label], label, overlap)
        left = torch.zeros_like(scores)
        left[place[kept], label[kept]] = scores[place[kept], label[kept]]
        best, named = left.max(-1)
        if int((best > 0).sum()) >= least:
            break
    regions = best.argsort(descending=True, stable=True)
    regions = regions[: min(max(int((best >= least_score).sum()), least), most)]
    best, named = best[regions], named[regions]
    return regions, best, torch.where(best > 0, named, -1)


# --- geometry ---


def _filled_up(size: tuple[int, int]) -> tuple[int, int]:
    """(height, width) with whole cells of the coarsest map."""
    height, width = size
    return (-(-height // _STRIDE) * _STRIDE, -(-width // _STRIDE) * _STRIDE)


# --- results ---


@dataclass(frozen=True)
class ImageRegions:
    """The r regions of one image."""

    vectors: Tensor  # (r, D)
    boxes: Tensor  # (r, 4) in pixels of the prepared image
    scores: Tensor | None = None  # (r,)
    labels: Tensor | None = None  # (r,)


def collect_regions(regions: Sequence[ImageRegions], batch: PreparedBatch) -> Features:
    """The regions of B images as one record, with boxes in pixels of the photos."""

    def pad(tensors: Sequence[Tensor], value: int = 0) -> Tensor:
        return pad_sequence(list(tensors), batch_first=True, padding_value=value)

    boxes = [boxes_on_photo(one.boxes, *frame) for one, *frame in zip(regions, batch.windows, batch.sizes, strict=True)]
    scores = [one.scores for one in regions if one.scores is not None]
    labels = [one.labels for one in regions if one.labels is not None]
    return Features(
        vectors=pad([one.vectors for one in regions]),
        is_region=pad([torch.ones_like(own[:, 0], dtype=torch.bool) for own in boxes]),
        regions=Regions(pad(boxes), pad(scores) if scores else None, pad(labels, -1) if labels else None),
    )


# --- building detectors ---


def _build_detector(config: FasterRcnnConfig, classes: int) -> detection.FasterRCNN:
    """The detector with random weights."""
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


def _load_detector(detector: detection.FasterRCNN, config: FasterRcnnConfig) -> None:
    """Put the weights that the settings name into a detector.

    Raises:
        WeightsError: they cannot be found or read, or are another detector's.
    """
    if config.weights == "random":
        return
    if config.weights == "pretrained":
        file = from_url(get_model_weights(config.detector).DEFAULT.url)
    else:
        file = Path(config.weights).expanduser()
    tensors = {_current_name(name): tensor for name, tensor in read_weights(file).items()}
    fit_weights(detector, tensors, source=str(file), name=config.detector, unused=_OTHER_HEADS)


# Of Mask R-CNN and Keypoint R-CNN, which are this detector with a further head.
_OTHER_HEADS = tuple(f"roi_heads.{kind}_{part}." for kind in ("mask", "keypoint") for part in ("head", "predictor"))


def _current_name(name: str) -> str:
    """A tensor's name as torchvision has it since 0.13; the files that it publishes are older."""
    name = re.sub(r"((?:inner|layer)_blocks\.\d+)\.(weight|bias)$", r"\1.0.\2", name)
    return re.sub(r"(rpn\.head\.conv)\.(weight|bias)$", r"\1.0.0.\2", name)
