from __future__ import annotations

import pytest
import timm
import torch
from pydantic import ValidationError

from showtell.errors import RecipeError
from showtell.features import build_encoder, encoder_config

IMAGES = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("norm", ["batch", "none"])
def test_small_cnn_has_a_vector_for_each_cell(norm):
    encoder = build_encoder(
        encoder_config({"name": "small_cnn", "image_size": 50, "widths": [8, 16, 24], "norm": norm})
    )
    features = encoder(IMAGES[..., :50, :50])
    assert features.vectors.shape == (2, 49, 24)  # 50 -> 25 -> 13 -> 7
    assert bool(features.is_region.all())
    features.vectors.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_cells_are_numbered_row_by_row():
    """A change in one corner of the picture reaches the cells of that corner and not the opposite ones."""
    encoder = build_encoder(encoder_config({"name": "small_cnn", "image_size": 64, "widths": [8, 8, 8]})).eval()
    dark = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    for cell, opposite, (row, column) in ((0, 63, (0, 0)), (7, 56, (0, 56)), (56, 7, (56, 0)), (63, 0, (56, 56))):
        bright = dark.clone()
        bright[..., row : row + 8, column : column + 8] = 255
        change = (encoder(bright).vectors - encoder(dark).vectors).detach().abs().sum(-1)[0]
        assert float(change[cell]) > 0
        assert float(change[opposite]) == 0


@pytest.mark.parametrize(
    ("name", "settings", "shape"),
    [
        ("resnet18", {"image_size": 64}, (2, 4, 512)),
        ("resnet18", {"image_size": 64, "stage": 3}, (2, 16, 256)),
        ("resnet18", {"image_size": 64, "grid": 7}, (2, 49, 512)),
        ("vit_tiny_patch16_224", {"image_size": 64}, (2, 16, 192)),
    ],
)
def test_backbones_of_timm_by_name_stage_and_grid(name, settings, shape):
    encoder = build_encoder(encoder_config({"name": name, "weights": "random", **settings}))
    assert encoder.feature_size == shape[-1]
    assert encoder(IMAGES).vectors.shape == shape


def test_preprocessing_is_that_of_the_backbone():
    encoder = build_encoder(encoder_config({"name": "vit_tiny_patch16_224", "weights": "random"}))
    settings = encoder.preprocessing
    expected = timm.get_pretrained_cfg("vit_tiny_patch16_224")
    assert settings.image_size == expected.input_size[1]
    assert (settings.mean, settings.deviation) == (expected.mean, expected.std)
    assert settings.interpolation == expected.interpolation
    assert settings.resize == "squash"


def test_the_features_are_those_of_timm_itself():
    torch.manual_seed(0)
    encoder = build_encoder(encoder_config({"name": "resnet18", "weights": "random", "image_size": 64})).eval()
    torch.manual_seed(0)
    plain = timm.create_model("resnet18", pretrained=False).eval()
    plain.load_state_dict(encoder.backbone.state_dict(), strict=False)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    pixels = (IMAGES.float() / 255 - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)
    expected = plain.forward_features(pixels).flatten(2).transpose(1, 2)
    torch.testing.assert_close(encoder(IMAGES).vectors, expected, atol=1e-4, rtol=1e-4)


def test_a_frozen_encoder_stays_in_eval_mode_and_has_no_gradients():
    encoder = build_encoder(
        encoder_config({"name": "resnet18", "weights": "random", "image_size": 64, "trained": False})
    )
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder.train()
    features = encoder(IMAGES)
    assert not features.vectors.requires_grad
    assert not any(module.training for module in encoder.modules())
    assert all(torch.equal(value, before[name]) for name, value in encoder.state_dict().items())


def test_unknown_encoders_and_settings_are_refused():
    with pytest.raises(RecipeError, match='There is no encoder "resnet"'):
        encoder_config({"name": "resnet"})
    with pytest.raises(ValidationError, match="extra"):
        encoder_config({"name": "small_cnn", "weights": "random"})
    with pytest.raises(RecipeError, match=r"encoder\.stage=9: resnet18 has 5 feature maps, numbered 0 to 4 "):
        build_encoder(encoder_config({"name": "resnet18", "weights": "random", "stage": 9}))
