"""Converted weights of the detector of bottom-up attention, in the two layouts in which people have them.

Both have the names of detectron2, from which ours are made by one table. They differ in the order of the classes and in
the forms of three layers, and the scores of the region proposal network tell them apart:

| | MILVLG/bottom-up-attention.pytorch at 4dbce86 | airsplay/py-bottom-up-attention at 85ec9b7 |
|---|---|---|
| files | bua-caffe-frcn-r101-k10-100.pth, -k36.pth | faster_rcnn_from_caffe.pkl, _attr.pkl, _attr_original.pkl |
| scores of an anchor | background and object (24), as in Caffe | their difference (12) |
| background, "no attribute" | first, as in Caffe | last |
| box regression | each class with the background, as in Caffe | without it, ten and five times as large |
| anchors | in the file | in the file or made as in Caffe |

Only the structure is known: no file of either kind was at hand. Numbers of tensors and weights are those of the two
projects' networks (tests/features/test_bottom_up_weights.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from showtell.errors import WeightsError
from showtell.features.bottom_up_detector import ATTRIBUTES, CLASSES, BottomUpDetector, caffe_anchors
from showtell.features.weights import load_weights, read_weights

# detectron2's names, and the release's
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
    (r"roi_heads\.box_predictor\.(cls_score|bbox_pred|cls_embedding|fc_attr|attr_score)\.", r"\1."),
    (r"roi_heads\.box_predictor\.cls_embed\.", "cls_embedding."),
    (r"roi_heads\.box_predictor\.attr_linear1\.", "fc_attr."),
    (r"roi_heads\.box_predictor\.attr_linear2\.", "attr_score."),
)
_UNUSED = ("pixel_mean", "pixel_std")  # which later versions of detectron2 add, and our preprocessing has
_ATTRIBUTE_LAYERS = ("cls_embedding.", "fc_attr.", "attr_score.")

_DELTA_FACTORS = (10.0, 10.0, 5.0, 5.0)  # by which detectron2 divides what `bbox_pred` says


def load_detector(detector: BottomUpDetector, file: Path) -> None:
    """Put a file of weights into a detector; without an attribute head, those of a head are left out.

    Raises:
        WeightsError: it cannot be read, or holds another network's.
    """
    tensors = caffe_form(read_weights(file))
    wants_attributes = hasattr(detector, "attr_score")
    if wants_attributes and not any(name.startswith(_ATTRIBUTE_LAYERS) for name in tensors):
        raise WeightsError(
            f"The weights in {file} have no attribute head: set encoder.attributes=false, or take a file with one."
        )
    unused = _UNUSED if wants_attributes else (*_UNUSED, *_ATTRIBUTE_LAYERS)
    load_weights(detector, tensors, source=str(file), name="bottom_up", unused=unused)


def caffe_form(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of either layout, or of `BottomUpDetector`, by its names and in its forms.

    What is unknown keeps its name, and what has another shape than the layout's keeps its form, so that it is named
    when the weights are loaded.
    """
    renamed = {_name(name): tensor for name, tensor in tensors.items()}
    anchors = caffe_anchors()
    scores = renamed.get("rpn_cls_score.weight")
    if scores is not None and len(scores) == len(anchors):
        renamed = {name: _from_detectron(name, tensor) for name, tensor in renamed.items()}
    return {"anchors": anchors} | renamed


def _name(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(f"^{pattern}", replacement, name)
    return name


def _from_detectron(name: str, tensor: Tensor) -> Tensor:
    """A tensor of the layout whose background comes last."""
    layer, rows = name.partition(".")[0], len(tensor) if tensor.dim() else 0
    if layer == "rpn_cls_score":
        return torch.cat([torch.zeros_like(tensor), tensor])
    if (layer, rows) in {("cls_score", CLASSES), ("cls_embedding", CLASSES), ("attr_score", ATTRIBUTES)}:
        return tensor.roll(1, 0)
    if layer == "bbox_pred" and rows == 4 * (CLASSES - 1):
        factors = tensor.new_tensor(_DELTA_FACTORS).repeat(CLASSES - 1)
        scaled = tensor / factors.view(-1, *[1] * (tensor.dim() - 1))
        return torch.cat([torch.zeros_like(scaled[:4]), scaled])
    return tensor
