"""Converted weights of bottom-up attention, with names and shapes from detectron2's code, not from ours."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from showtell.errors import WeightsError
from showtell.features.bottom_up import BottomUpDetector, load_detector

Shapes = dict[str, tuple[int, ...]]


def convolution(name: str, *shape: int) -> Shapes:
    """Of detectron2: no bias, and a batch norm within."""
    parts = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.weight": shape, **{f"{name}.norm.{part}": shape[:1] for part in parts}}


def resnet101() -> Shapes:
    shapes = convolution("backbone.stem.conv1", 64, 3, 7, 7)
    inputs = 64
    for stage, blocks, width in (
        ("backbone.res2", 3, 64), ("backbone.res3", 4, 128), ("backbone.res4", 23, 256), ("roi_heads.res5", 3, 512),
    ):  # fmt: skip
        for block in range(blocks):
            name = f"{stage}.{block}"
            if block == 0:
                shapes |= convolution(f"{name}.shortcut", 4 * width, inputs, 1, 1)
            shapes |= convolution(f"{name}.conv1", width, inputs, 1, 1)
            shapes |= convolution(f"{name}.conv2", width, width, 3, 3)
            shapes |= convolution(f"{name}.conv3", 4 * width, width, 1, 1)
            inputs = 4 * width
    return shapes


RPN, BOX = "proposal_generator.rpn_head", "roi_heads.box_predictor"
MILVLG: Shapes = resnet101() | {
    "proposal_generator.anchor_generator.cell_anchors.0": (12, 4),
    f"{RPN}.conv.weight": (512, 1024, 3, 3), f"{RPN}.conv.bias": (512,),
    f"{RPN}.objectness_logits.weight": (24, 512, 1, 1), f"{RPN}.objectness_logits.bias": (24,),
    f"{RPN}.anchor_deltas.weight": (48, 512, 1, 1), f"{RPN}.anchor_deltas.bias": (48,),
    f"{BOX}.cls_score.weight": (1601, 2048), f"{BOX}.cls_score.bias": (1601,),
    f"{BOX}.bbox_pred.weight": (6404, 2048), f"{BOX}.bbox_pred.bias": (6404,),
    f"{BOX}.cls_embed.weight": (1601, 256),
    f"{BOX}.attr_linear1.weight": (512, 2304), f"{BOX}.attr_linear1.bias": (512,),
    f"{BOX}.attr_linear2.weight": (401, 512), f"{BOX}.attr_linear2.bias": (401,),
}  # fmt: skip


def own_name(name: str) -> str:
    """Our name of a tensor, by plain replacements."""
    for stage in range(2, 5):
        name = name.replace(f"backbone.res{stage}.", f"resnet.layer{stage - 1}.")
    name = name.replace("roi_heads.res5.", "resnet.layer4.").replace("backbone.stem.", "resnet.")
    for number in "123":
        name = name.replace(f"conv{number}.norm.", f"bn{number}.")
    name = name.replace("shortcut.norm.", "downsample.1.").replace("shortcut.", "downsample.0.")
    name = name.replace("proposal_generator.anchor_generator.cell_anchors.0", "anchors").replace(f"{RPN}.", "rpn_")
    name = name.replace("objectness_logits", "cls_score").replace("anchor_deltas", "bbox_pred").replace(f"{BOX}.", "")
    name = name.replace("attr_linear1", "fc_attr").replace("attr_linear2", "attr_score")
    return name.replace("cls_embed.", "cls_embedding.")


def load(monkeypatch: pytest.MonkeyPatch, detector: BottomUpDetector, tensors: dict[str, Tensor]) -> None:
    """Load a file that holds some tensors; nothing is written, for that would be 262 MB."""
    monkeypatch.setattr("showtell.features.bottom_up.read_weights", lambda file: dict(tensors))
    load_detector(detector, Path("w.pth"))


def test_a_file_gives_the_detector_that_it_was_made_of(lively, monkeypatch):
    """Anchors are taken from the file: those written here are not Caffe's. Counts of batches are of training alone."""
    expected = {name: tensor for name, tensor in lively.detector.state_dict().items() if "num_batches" not in name}
    expected["anchors"] = expected["anchors"] + 1
    assert (len(MILVLG), sum(torch.Size(shape).numel() for shape in MILVLG.values())) == (536, 65_559_566)
    regression = {name: torch.zeros(1).expand(MILVLG[name]) for name in MILVLG if f"{BOX}.bbox_pred" in name}
    file = {name: expected[own_name(name)] for name in MILVLG if name not in regression}
    assert len(file) == len(expected) == 534
    assert all(tuple(tensor.shape) == MILVLG[name] for name, tensor in file.items())
    for tensors in (file | regression, expected):  # by our own names, too
        loaded = BottomUpDetector()
        load(monkeypatch, loaded, tensors)
        assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in expected.items())


@pytest.mark.filterwarnings("ignore:.*meta parameter")
def test_files_that_do_not_fit_are_named(monkeypatch):
    with torch.device("meta"):
        detector = BottomUpDetector()
    whole = {name: torch.zeros(1).expand(shape) for name, shape in MILVLG.items()}
    norm = "backbone.res4.22.conv2.norm.running_var"
    for tensors, message in (
        ({name: whole[name] for name in whole if name != norm}, "1 are missing: resnet.layer3.22.bn2.running_var."),
        (whole | {"roi_heads.mask_head.bias": torch.ones(1)}, "1 are unknown: roi_heads.mask_head.bias."),
        (whole | {f"{BOX}.cls_score.bias": torch.ones(9)}, "shape: cls_score.bias is (9,) and should be (1601,)."),
    ):
        with pytest.raises(WeightsError) as caught:
            load(monkeypatch, detector, tensors)
        assert str(caught.value).endswith(message)
