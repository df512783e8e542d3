"""The encoder `bottom_up`: the regions of bottom-up attention (Anderson et al., 2018), from a photo.

Captioners that were trained on the features of the authors' release look through this detector, whose weights were
converted from Caffe. Regions are those of the release's tools/generate_tsv.py: the boxes of the proposals, chosen as
features/regions.py has it, 10 to 100 of a photo. The detector is Faster R-CNN on ResNet-101, as it runs in Caffe, read
from the release (peteanderson80/bottom-up-attention at 514e561): models/vg/ResNet-101/faster_rcnn_end2end_final/
test.prototxt, lib/rpn/proposal_layer.py, lib/rpn/generate_anchors.py and lib/fast_rcnn. Layers have the names that they
have there.

    maps        conv1 to res4 of the photo: 1,024 channels, a cell for 16 pixels
    proposals   3x3 convolution to 512 channels, ReLU; of each of 12 anchors of a cell a pair of scores (background,
                object) and four numbers that move and stretch it. Boxes are cut off at the photo's edges, thin ones
                left out, the 6,000 best suppressed above an overlap of 0.7, and the first 300 kept
    vectors     RoI max pooling to 14 x 14, res5 with stride 1 and dilation 2, the mean of its 2,048 channels
    classes     a linear layer to 1,601 logits, background first (the one that would move boxes again is left out)
    attributes  the vector and an embedding of the most likely class (256), a linear layer to 512, ReLU, and one to
                401 logits, "no attribute" first

Boxes count pixels as Caffe does: corners lie on pixels, and a box from 3 to 5 is 3 wide.

Weights are read as MILVLG/bottom-up-attention.pytorch (at 4dbce86) converted them: bua-caffe-frcn-r101-k10-100.pth and
-k36.pth hold Caffe's own tensors under the names of detectron2, anchors included. No file was at hand: names and shapes
are those of that project's network (tests/features/test_bottom_up_weights.py).

Where we differ from the release:
1. A photo is resized by Pillow, in whole numbers and smoothed where it shrinks, before the mean is subtracted; the
   release subtracts first and does not smooth. Photos of COCO grow, for which both are the same up to rounding.
2. Regions come best first. A region's class is that to which suppression left it, as its score is; the release's demo
   names the most likely class, whatever suppression said.
3. Proposals are ranked by the difference of their two scores, not by its softmax, which rounds great ones to 1.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from showtell.config import Pixels, Size
from showtell.errors import WeightsError
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.quick_import import quick_import
from showtell.features.regions import ImageRegions, choose_regions, collect_regions
from showtell.features.resnet_caffe import BLOCKS, caffe_resnet, last_map_before_stage_4
from showtell.features.weights import load_weights, read_weights, weights_path
from showtell.images.boxes import boxes_on_photo
from showtell.images.preprocessing import Preprocessing
from showtell.text.objects import visual_genome_names
from showtell.types import Features, PreparedBatch

CLASSES = 1601  # with the background
ATTRIBUTES = 401  # with "no attribute"
FEATURE_SIZE = 2048
CANDIDATES = 6000  # proposals before suppression
STRIDE = 16  # pixels of a photo to a cell of the map that boxes are pooled from

Side = Annotated[Pixels, Field(ge=STRIDE)]

_PIXEL_MEANS = (122.7717, 115.9465, 102.9801)  # red, green, blue
_SCALES, _RATIOS = (4, 8, 16, 32), (0.5, 1.0, 2.0)  # of anchors: sides in strides, heights over widths
_OVERLAP = 0.7  # above which a worse proposal is dropped
_MIN_SIDE = 16  # pixels of the photo; thinner proposals are left out
_POOLED = 14  # cells of each side of a pooled region
_REGIONS_AT_ONCE = 64  # in res5: it bounds the memory
_MAX_STRETCH = math.log(1000 / 16)  # of a side; Caffe has no limit, and beyond this every photo ends

# detectron2's names, and ours
_NAMES = (
    (r"backbone\.stem\.conv1\.norm\.", "resnet.bn1."),
    (r"backbone\.stem\.conv1\.", "resnet.conv1."),
    (r"backbone\.res2\.", "resnet.layer1."),
    (r"backbone\.res3\.", "resnet.layer2."),
    (r"backbone\.res4\.", "resnet.layer3."),
    (r"roi_heads\.res5\.", "resnet.layer4."),
    (r"(resnet\.layer\d\.\d+\.)conv(\d)\.norm\.", r"\1bn\2."),
    (r"(resnet\.layer\d\.\d+\.)shortcut\.norm\.", r"\1downsample.1."),
    (r"(resnet\.layer\d\.\d+\.)shortcut\.", r"\1downsample.0."),
    (r"proposal_generator\.anchor_generator\.cell_anchors\.0$", "anchors"),
    (r"proposal_generator\.rpn_head\.conv\.", "rpn_conv."),
    (r"proposal_generator\.rpn_head\.objectness_logits\.", "rpn_cls_score."),
    (r"proposal_generator\.rpn_head\.anchor_deltas\.", "rpn_bbox_pred."),
    (r"roi_heads\.box_predictor\.cls_score\.", "cls_score."),
    (r"roi_heads\.box_predictor\.cls_embed\.", "cls_embedding."),
    (r"roi_heads\.box_predictor\.attr_linear1\.", "fc_attr."),
    (r"roi_heads\.box_predictor\.attr_linear2\.", "attr_score."),
)


class BottomUpConfig(EncoderConfig):
    """The detector of bottom-up attention and which of its regions are kept."""

    name: Literal["bottom_up"] = "bottom_up"
    trained: Literal[False] = Field(False, description="A detector is always frozen, as in the paper.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="A file of converted weights, `random`; `pretrained` says where such files come from.",
    )
    min_regions: Size = Field(
        10, description="Minimum number of regions; equal to `max_regions` for a fixed number (release: 36)."
    )
    max_regions: Size = Field(100, description="Maximum number of regions.")
    score_threshold: float = Field(
        0.2, ge=0, le=1, description="Minimum class probability of regions beyond `min_regions`."
    )
    nms_threshold: float = Field(
        0.3, gt=0, le=1, description="Intersection over union above which non-maximum suppression drops a box."
    )
    proposals: Annotated[Size, Field(le=CANDIDATES)] = Field(
        300, description="Number of proposals that are classified."
    )
    attribute_threshold: float = Field(
        0.1, ge=0, le=1, description="Minimum probability of an attribute that is named (release: 0.1)."
    )
    image_size: Side = Field(600, description="Pixels of the shorter side.")
    longest: Side = Field(1000, description="Maximum number of pixels of the longer side.")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not self.min_regions <= self.max_regions <= self.proposals:
            raise ValueError(
                f"min_regions={self.min_regions} must not be above max_regions={self.max_regions}, "
                f"nor that above proposals={self.proposals}"
            )
        return self


class BottomUp(Encoder):
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
            image_size=config.image_size, resize="fit", longest=config.longest, interpolation="bilinear",
            mean=tuple(mean / 255 for mean in _PIXEL_MEANS), deviation=(1 / 255,) * 3,
        )  # fmt: skip

    @torch.no_grad()
    def forward(self, batch: PreparedBatch) -> Features:
        """The regions of each photo, best first. A photo without a proposal is one region."""
        photos = zip(batch.images, batch.windows, batch.sizes, strict=True)
        return collect_regions([self._regions(*photo) for photo in photos], batch)

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The boxes of the regions."""
        assert features.regions is not None
        return features.regions.boxes

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
        config = self.config
        chosen, best, labels = choose_regions(
            on_photo, scores, min_regions=config.min_regions, max_regions=config.max_regions,
            score_threshold=config.score_threshold, nms_threshold=config.nms_threshold,
        )  # fmt: skip
        of_attributes = self.detector.attribute_probabilities(vectors[chosen], logits[chosen])
        probabilities, attributes = of_attributes[:, 1:].max(-1)
        attributes = torch.where(probabilities >= config.attribute_threshold, attributes, -1)
        return ImageRegions(vectors[chosen], proposals[chosen], best, labels, attributes)


class BottomUpDetector(nn.Module):
    """The network; `anchors` are among its weights, since converted files bring theirs."""

    anchors: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.resnet = caffe_resnet(BLOCKS[101])
        first = self.resnet.layer4[0]
        first.conv1.stride = first.downsample[0].stride = (1, 1)
        for block in self.resnet.layer4:
            block.conv2.padding = block.conv2.dilation = (2, 2)
        self.register_buffer("anchors", caffe_anchors())
        count = len(self.anchors)
        self.rpn_conv = nn.Conv2d(FEATURE_SIZE // 2, 512, 3, padding=1)
        self.rpn_cls_score = nn.Conv2d(512, 2 * count, 1)
        self.rpn_bbox_pred = nn.Conv2d(512, 4 * count, 1)
        self.cls_score = nn.Linear(FEATURE_SIZE, CLASSES)
        self.cls_embedding = nn.Embedding(CLASSES, 256)
        self.fc_attr = nn.Linear(FEATURE_SIZE + 256, 512)
        self.attr_score = nn.Linear(512, ATTRIBUTES)

    def maps(self, pixels: Tensor) -> Tensor:
        """(B, 3, height, width), blue first, less the mean of each channel, to (B, 1024, rows, columns)."""
        return last_map_before_stage_4(self.resnet, pixels)

    def propose(self, maps: Tensor, size: tuple[int, int], scale: float, count: int) -> Tensor:
        """The best boxes, (n, 4) on an image (height, width) `scale` times its photo, of maps (1, 1024, rows, cols)."""
        nms = quick_import("torchvision.ops").nms
        hidden = self.rpn_conv(maps).relu()
        background, objects = self.rpn_cls_score(hidden).unflatten(1, (2, -1))[0]  # (12, rows, columns) each
        scores = (objects - background).permute(1, 2, 0).flatten()  # in the order of their softmax
        deltas = self.rpn_bbox_pred(hidden)[0].unflatten(0, (-1, 4)).permute(2, 3, 0, 1).flatten(0, 2)
        rows, columns = maps.shape[-2:]
        shifts = torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).to(self.anchors) * STRIDE
        anchors = (self.anchors + shifts[:, [1, 0, 1, 0]].unsqueeze(1)).flatten(0, 1)
        boxes = move_boxes(anchors, deltas)
        boxes = boxes.clamp(min=0).minimum(boxes.new_tensor([size[1] - 1, size[0] - 1] * 2))  # at the outermost pixels
        is_wide = (boxes[:, 2:] - boxes[:, :2] + 1 >= _MIN_SIDE * scale).all(-1)
        boxes, scores = boxes[is_wide], scores[is_wide]
        best = scores.argsort(descending=True, stable=True)[:CANDIDATES]
        boxes, scores = boxes[best], scores[best]
        return boxes[nms(cover_pixels(boxes), scores, _OVERLAP)[:count]]

    def vectors(self, maps: Tensor, boxes: Tensor) -> Tensor:
        """The vectors (n, 2048) of boxes (n, 4) of one photo whose maps are (1, 1024, rows, columns)."""
        roi_pool = quick_import("torchvision.ops").roi_pool
        vectors = [
            self.resnet.layer4(roi_pool(maps, [some], _POOLED, 1 / STRIDE)).mean((-2, -1))
            for some in torch.split(boxes, _REGIONS_AT_ONCE)
        ]
        return torch.cat(vectors)

    def attribute_probabilities(self, vectors: Tensor, logits: Tensor) -> Tensor:
        """Vectors (n, 2048) and logits of classes (n, 1601) to the probability of each attribute, (n, 401)."""
        known = torch.cat([vectors, self.cls_embedding(logits.argmax(-1))], -1)
        probabilities: Tensor = self.attr_score(self.fc_attr(known).relu()).softmax(-1)
        return probabilities


def load_detector(detector: BottomUpDetector, file: Path) -> None:
    """Put a file of weights into a detector; a WeightsError if it cannot be read, or holds another network's."""
    unused = ["roi_heads.box_predictor.bbox_pred."]  # regions keep the boxes of proposals, as the release has it
    load_weights(detector, rename(read_weights(file)), source=str(file), name="bottom_up", unused=unused)


def rename(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by the names of `BottomUpDetector`; what is unknown keeps its name."""
    for pattern, replacement in _NAMES:
        tensors = {re.sub(f"^{pattern}", replacement, name): tensor for name, tensor in tensors.items()}
    return tensors


def caffe_anchors() -> Tensor:
    """The 12 anchors of the upper left cell, (12, 4): a square of 16 pixels in each ratio, with whole sides, scaled."""
    anchors = []
    for ratio in _RATIOS:
        width = round(math.sqrt(STRIDE * STRIDE / ratio))
        height = round(width * ratio)
        for scale in _SCALES:
            across, down = (width * scale - 1) / 2, (height * scale - 1) / 2
            centre = (STRIDE - 1) / 2
            anchors.append((centre - across, centre - down, centre + across, centre + down))
    return torch.tensor(anchors)


def move_boxes(boxes: Tensor, deltas: Tensor) -> Tensor:
    """Boxes (..., 4) moved by shares of their sides and stretched by exponents: (..., 4)."""
    sides = boxes[..., 2:] - boxes[..., :2] + 1
    centres = boxes[..., :2] + sides / 2 + deltas[..., :2] * sides
    half = deltas[..., 2:].clamp(max=_MAX_STRETCH).exp() * sides / 2
    return torch.cat([centres - half, centres + half], -1)  # right and lower edges a pixel too far out, as in Caffe


def cover_pixels(boxes: Tensor) -> Tensor:
    """Boxes (..., 4) whose corners lie on pixels, as edges around these pixels, for overlaps as Caffe measures them."""
    return torch.cat([boxes[..., :2], boxes[..., 2:] + 1], -1)
