"""Converted weights of bottom-up attention: both layouts, from the module structure of the two projects.

The names and shapes below were written down from the projects' code (detectron2's ResNet and RPN with the changes of
each), not from ours, so that a key that our table forgets or invents is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from showtell.errors import WeightsError
from showtell.features.bottom_up_detector import BottomUpDetector
from showtell.features.bottom_up_weights import caffe_form, load_detector

Shapes = dict[str, tuple[int, ...]]


def convolution(name: str, *shape: int) -> Shapes:
    """Of detectron2: no bias, and a batch norm within."""
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.weight": shape, **{f"{name}.norm.{part}": shape[:1] for part in parts}}


def resnet101() -> Shapes:
    shapes = convolution("backbone.stem.conv1", 64, 3, 7, 7)
    inputs = 64
    for stage, blocks, width in (
        ("backbone.res2", 3, 64),
        ("backbone.res3", 4, 128),
        ("backbone.res4", 23, 256),
        ("roi_heads.res5", 3, 512),
    ):
        for block in range(blocks):
            name = f"{stage}.{block}"
            if block == 0:
                shapes |= convolution(f"{name}.shortcut", 4 * width, inputs, 1, 1)
            shapes |= convolution(f"{name}.conv1", width, inputs, 1, 1)
            shapes |= convolution(f"{name}.conv2", width, width, 3, 3)
            shapes |= convolution(f"{name}.conv3", 4 * width, width, 1, 1)
            inputs = 4 * width
    return shapes


def heads(objectness: int, boxes: int, embedding: str, hidden: str, attributes: str) -> Shapes:
    rpn, box = "proposal_generator.rpn_head", "roi_heads.box_predictor"
    return {
        "proposal_generator.anchor_generator.cell_anchors.0": (12, 4),
        f"{rpn}.conv.weight": (512, 1024, 3, 3), f"{rpn}.conv.bias": (512,),
        f"{rpn}.objectness_logits.weight": (objectness, 512, 1, 1), f"{rpn}.objectness_logits.bias": (objectness,),
        f"{rpn}.anchor_deltas.weight": (48, 512, 1, 1), f"{rpn}.anchor_deltas.bias": (48,),
        f"{box}.cls_score.weight": (1601, 2048), f"{box}.cls_score.bias": (1601,),
        f"{box}.bbox_pred.weight": (boxes, 2048), f"{box}.bbox_pred.bias": (boxes,),
        f"{box}.{embedding}.weight": (1601, 256),
        f"{box}.{hidden}.weight": (512, 2304), f"{box}.{hidden}.bias": (512,),
        f"{box}.{attributes}.weight": (401, 512), f"{box}.{attributes}.bias": (401,),
    }  # fmt: skip


MILVLG = resnet101() | heads(24, 4 * 1601, "cls_embed", "attr_linear1", "attr_linear2")
AIRSPLAY = resnet101() | heads(12, 4 * 1600, "cls_embedding", "fc_attr", "attr_score")
LAYOUTS = {"milvlg": MILVLG, "airsplay": AIRSPLAY}
ATTRIBUTES = ("cls_embed", "attr_linear", "fc_attr", "attr_score")


@pytest.mark.parametrize(("layout", "count"), [("milvlg", 65_559_566), ("airsplay", 65_545_214)])
def test_every_key_of_a_layout_has_its_place_and_no_place_is_empty(layout, count):
    """On the meta device, which knows shapes and has no numbers."""
    with torch.device("meta"):
        detector = BottomUpDetector()
        tensors = {name: torch.empty(shape) for name, shape in LAYOUTS[layout].items()}
    assert len(tensors) == 536
    assert sum(tensor.numel() for tensor in tensors.values()) == count
    places = {
        name: tuple(tensor.shape)
        for name, tensor in detector.state_dict().items()
        if not name.endswith("num_batches_tracked")  # of training alone; neither kind of file has it for all layers
    }
    assert len(places) == 536
    assert {name: tuple(tensor.shape) for name, tensor in caffe_form(tensors).items()} == places


def milvlg_of(detector: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a detector in that layout: Caffe's own forms, in the order in which both lists were written down."""
    own = {name: tensor for name, tensor in detector.items() if not name.endswith("num_batches_tracked")}
    tensors = {}
    for name in MILVLG:
        theirs = name
        for stage in range(2, 5):
            theirs = theirs.replace(f"backbone.res{stage}.", f"resnet.layer{stage - 1}.")
        theirs = theirs.replace("roi_heads.res5.", "resnet.layer4.").replace("backbone.stem.", "resnet.")
        for number in "123":
            theirs = theirs.replace(f"conv{number}.norm.", f"bn{number}.")
        theirs = theirs.replace("shortcut.norm.", "downsample.1.").replace("shortcut.", "downsample.0.")
        theirs = theirs.replace("proposal_generator.anchor_generator.cell_anchors.0", "anchors")
        theirs = theirs.replace("proposal_generator.rpn_head.", "rpn_").replace("objectness_logits", "cls_score")
        theirs = theirs.replace("anchor_deltas", "bbox_pred").replace("roi_heads.box_predictor.", "")
        theirs = theirs.replace("cls_embed.", "cls_embedding.").replace("attr_linear1", "fc_attr")
        tensors[name] = own.pop(theirs.replace("attr_linear2", "attr_score")).detach()
    assert not own
    return tensors


def airsplay_of(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """That layout from the other: one score an anchor, background last, boxes without it and in other units."""
    changed = {}
    for (name, tensor), theirs in zip(tensors.items(), AIRSPLAY, strict=True):
        if "objectness" in name:
            tensor = tensor[12:] - tensor[:12]
        elif "bbox_pred" in name:
            tensor = (tensor.unflatten(0, (1601, 4))[1:].transpose(0, 1) * 1.0).contiguous()
            for index, factor in enumerate((10, 10, 5, 5)):
                tensor[index] *= factor
            tensor = tensor.transpose(0, 1).flatten(0, 1)
        elif any(part in name for part in ("cls_score", "cls_embed", "attr_linear2")):
            tensor = tensor.roll(-1, 0)
        changed[theirs] = tensor
    assert {name: tuple(tensor.shape) for name, tensor in changed.items()} == AIRSPLAY
    return changed


# --- files that do not fit ---


def shell_of(layout: str) -> dict[str, Tensor]:
    """Tensors of a layout's shapes that share one number."""
    return {name: torch.zeros(1).expand(shape) for name, shape in LAYOUTS[layout].items()}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[BottomUpDetector, Mapping[str, Tensor]], None]:
    """Loads a file that holds some tensors; nothing is written, for that would be 262 MB."""

    def load(detector: BottomUpDetector, tensors: Mapping[str, Tensor]) -> None:
        monkeypatch.setattr("showtell.features.bottom_up_weights.read_weights", lambda file: dict(tensors))
        load_detector(detector, Path("w.pth"))

    return load


def test_both_layouts_give_the_detector_they_were_made_of(lively, load):
    """Anchors are taken from the file: those written here are not Caffe's."""
    original = lively.detector
    expected = {name: tensor.clone() for name, tensor in original.state_dict().items()}
    expected["anchors"] += 1
    milvlg = milvlg_of(expected)
    loaded = BottomUpDetector()
    for tensors in (milvlg, expected):
        load(loaded, tensors)
        assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())
    airsplay = airsplay_of(milvlg) | {"pixel_mean": torch.zeros(3, 1, 1)}  # which later versions of detectron2 add
    del airsplay["proposal_generator.anchor_generator.cell_anchors.0"]
    load(loaded, airsplay)
    expected["anchors"] -= 1
    for name, tensor in loaded.state_dict().items():
        wanted = expected[name]
        if name.startswith("rpn_cls_score"):  # only the difference of an anchor's two scores counts
            tensor, wanted = tensor[12:] - tensor[:12], wanted[12:] - wanted[:12]
        if name.startswith("bbox_pred"):
            tensor, wanted = tensor[4:], wanted[4:]
        torch.testing.assert_close(tensor, wanted)


@pytest.mark.filterwarnings("ignore:.*meta parameter")
def test_files_that_do_not_fit_are_named(load):
    with torch.device("meta"):
        detector, plain = BottomUpDetector(), BottomUpDetector(attributes=False)
    for layout in LAYOUTS:
        whole = shell_of(layout)
        without = {name: tensor for name, tensor in whole.items() if not any(f".{own}" in name for own in ATTRIBUTES)}
        assert len(without) == 531
        for fits in (without, whole):  # without a head of its own, the detector leaves that of a file out
            load(plain, fits)
        norm = "backbone.res4.22.conv2.norm.running_var"
        for tensors, message in (
            (without, "w.pth have no attribute head: set encoder.attributes=false, or take a file with one."),
            ({name: whole[name] for name in whole if name != norm}, "1 are missing: resnet.layer3.22.bn2.running_var."),
            (whole | {"roi_heads.mask_head.bias": torch.ones(1)}, "1 are unknown: roi_heads.mask_head.bias."),
            (
                whole | {"roi_heads.box_predictor.bbox_pred.bias": torch.zeros(())},
                "1 have another shape: bbox_pred.bias is () and should be (6404,).",
            ),
        ):
            with pytest.raises(WeightsError) as caught:
                load(detector, tensors)
            assert str(caught.value).endswith(message)
