"""Features: what the encoders see in an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pydantic import ValidationError

from showtell.config import describe_problem
from showtell.errors import RecipeError, nearest
from showtell.features.bottom_up import BottomUp, BottomUpConfig
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.quick_import import knows_backbone, quick_import
from showtell.features.resnet_caffe import ResNetCaffe, ResNetCaffeConfig
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.features.store import FeatureStore, ImageFeatures, StoredImage, StoreInfo, StoreWriter, collate_features
from showtell.features.timm_grid import TimmConfig, TimmGrid
from showtell.registry import Registry, is_settings_and_part

__all__ = [
    "ENCODERS", "Encoder", "EncoderConfig", "FeatureStore", "ImageFeatures", "StoreInfo", "StoreWriter", "StoredImage",
    "build_encoder", "collate_features", "encoder_config",
]  # fmt: skip

# name: (settings, what makes the encoder, told whether to load weights); any other name is one of timm's.
ENCODERS: Registry[tuple[type[EncoderConfig], Callable[[Any, bool], Encoder]]] = Registry(
    "showtell.encoders",
    {
        "small_cnn": (SmallCnnConfig, SmallCnn),
        "resnet_caffe": (ResNetCaffeConfig, ResNetCaffe),
        "bottom_up": (BottomUpConfig, BottomUp),
        "precomputed": (PrecomputedConfig, lambda config, _: Precomputed(config)),
    },
    expects="a pair of settings (an EncoderConfig whose field `name` has that name as its default) and a function that "
    "makes the encoder from them",
    accepts=partial(is_settings_and_part, settings=EncoderConfig),
)


def encoder_config(content: dict[str, Any]) -> EncoderConfig:
    """The settings of an encoder of ours or timm's by name; a RecipeError if neither knows it or has such weights."""
    name = str(content.get("name", ""))
    if name in ENCODERS:
        return ENCODERS[name][0].model_validate(content)
    timm = quick_import("timm")
    architecture, _, tag = name.partition(".")
    if not knows_backbone(architecture):
        close = nearest(name, [*ENCODERS, *timm.list_models()]).split("Known:")[0].strip()
        raise RecipeError(
            f'There is no encoder "{name}"; {close + " " if close else ""}known are {", ".join(ENCODERS)} and the '
            "backbones of timm (timm.list_models())."
        )
    if tag and tag not in (tags := [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]):
        raise RecipeError(f'timm has no weights "{tag}" of {architecture}; {nearest(tag, tags)}.')
    return TimmConfig.model_validate(content)


def build_encoder(config: EncoderConfig, load_weights: bool = True) -> Encoder:
    """Make an encoder (a checkpoint brings weights that are not loaded), or raise a RecipeError or WeightsError."""
    name = config.name  # type: ignore[attr-defined]
    make: Callable[[Any, bool], Encoder] = ENCODERS[name][1] if name in ENCODERS else TimmGrid
    with torch.random.fork_rng(devices=(), enabled=config.seed is not None):
        if config.seed is not None:
            torch.manual_seed(config.seed)
        try:
            encoder = make(config, load_weights)
        except ValidationError as error:  # of the preprocessing that follows from the settings
            raise RecipeError(f"encoder: {describe_problem(error)}") from error
    if not config.trained:
        encoder.requires_grad_(False)
    return encoder.train()  # what is frozen, into eval mode
