from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.features import build_encoder, encoder_config
from showtell.features.bottom_up import BottomUp
from tests.features.resnet_by_hand import enliven

NOWHERE = "http://127.0.0.1:1/{repo_id}/resolve/{revision}/{filename}"  # nobody listens on port 1
SMALL = {
    "name": "bottom_up", "weights": "random", "seed": 0, "image_size": 80, "longest": 140, "proposals": 7,
    "min_regions": 3, "max_regions": 7, "score_threshold": 0.5, "attribute_threshold": 0.1,
}  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no way to the hub itself."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", NOWHERE)
    return tmp_path / "hub"


def noise(height: int, width: int, seed: int = 0) -> Tensor:
    """An image of soft noise."""
    coarse = torch.rand(1, 3, height // 8 + 1, width // 8 + 1, generator=torch.Generator().manual_seed(seed))
    return (255 * F.interpolate(coarse, (height, width), mode="bilinear")[0]).to(torch.uint8)


@pytest.fixture(scope="session")
def lively() -> BottomUp:
    """A detector of bottom-up attention at its full size, over small images and with opinions about them.

    Fresh weights give every box the same scores and move none. Who changes it changes it back.
    """
    encoder = build_encoder(encoder_config(SMALL)).eval()
    assert isinstance(encoder, BottomUp)
    detector = encoder.detector
    torch.manual_seed(0)
    with torch.no_grad():
        enliven(detector.state_dict())
        pixels = encoder.preprocessing.normalise(noise(80, 112).unsqueeze(0)).flip(1)
        maps = detector.maps(pixels)
        hidden = detector.rpn_conv(maps).relu()
        boxes = torch.tensor([[0.0, 0, 60, 60], [20, 10, 100, 70], [5, 40, 50, 79], [60, 0, 111, 50]])
        vectors = detector.vectors(maps, boxes)
        for layer, seen, spread in (
            (detector.rpn_cls_score, hidden, 2.0),
            (detector.rpn_bbox_pred, hidden, 0.3),
            (detector.cls_score, vectors, 6.0),
        ):
            layer.weight.normal_()
            layer.bias.zero_()
            outputs = layer(seen).movedim(1, 0).flatten(1)  # of each channel, everywhere
            layer.weight.mul_((spread / outputs.std(1)).view(-1, *[1] * (layer.weight.dim() - 1)))
            layer.bias.sub_(spread * outputs.mean(1) / outputs.std(1))
        detector.cls_embedding.weight.normal_()
        detector.fc_attr.weight.normal_(0, 0.1)
        detector.attr_score.weight.normal_(0, 0.1)
    return encoder
