"""The detector of bottom-up attention (Anderson et al., 2018): Faster R-CNN on ResNet-101, as it runs in Caffe.

Read from the release (peteanderson80/bottom-up-attention at 514e561): models/vg/ResNet-101/faster_rcnn_end2end_final/
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
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch
from torch import Tensor, nn

from showtell.features.quick_import import quick_import
from showtell.features.resnet_caffe import BLOCKS, caffe_resnet, last_map_before_stage_4
from showtell.features.weights import load_weights, read_weights

CLASSES = 1601  # with the background
ATTRIBUTES = 401  # with "no attribute"
FEATURE_SIZE = 2048
CANDIDATES = 6000  # proposals before suppression
STRIDE = 16  # pixels of a photo to a cell of the map that boxes are pooled from

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
        """Boxes of one photo that may hold something: (n, 4) corners in pixels of the image, best first, n up to count.

        Args:
            maps: (1, 1024, rows, columns).
            size: (height, width) of the image.
            scale: pixels of the image for each of the photo's.
            count: of proposals.
        """
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
    """Boxes (..., 4) moved by shares of their sides and stretched by exponents: (..., 4).

    As in Caffe, the right and lower edge lie a pixel further out than the size of the box would have it.
    """
    sides = boxes[..., 2:] - boxes[..., :2] + 1
    centres = boxes[..., :2] + sides / 2 + deltas[..., :2] * sides
    half = deltas[..., 2:].clamp(max=_MAX_STRETCH).exp() * sides / 2
    return torch.cat([centres - half, centres + half], -1)


def cover_pixels(boxes: Tensor) -> Tensor:
    """Boxes (..., 4) whose corners lie on pixels, as edges around these pixels, for overlaps as Caffe measures them."""
    return torch.cat([boxes[..., :2], boxes[..., 2:] + 1], -1)
