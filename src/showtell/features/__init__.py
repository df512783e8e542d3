"""Features: what the encoders see in an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from showtell.errors import RecipeError, nearest
from showtell.features.bottom_up import BottomUp, BottomUpConfig
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.faster_rcnn import FasterRcnn, FasterRcnnConfig
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.quick_import import without_compiler
from showtell.features.resnet_caffe import ResNetCaffe, ResNetCaffeConfig
from showtell.features.roi_grid import RoiGrid, RoiGridConfig
from showtell.features.small_cnn import SmallCnn, SmallCnnConfig
from showtell.features.timm_grid import TimmConfig, TimmGrid
from showtell.registry import Registry, is_settings_and_part

__all__ = ["ENCODERS", "Encoder", "EncoderConfig", "build_encoder", "encoder_config"]

# name: (settings, what makes the encoder, told whether to load weights); any other name is one of timm's.
ENCODERS: Registry[tuple[type[EncoderConfig], Callable[[Any, bool], Encoder]]] = Registry(
    "showtell.encoders",
    {
        "small_cnn": (SmallCnnConfig, SmallCnn),
        "resnet_caffe": (ResNetCaffeConfig, ResNetCaffe),
        "faster_rcnn": (FasterRcnnConfig, FasterRcnn),
        "bottom_up": (BottomUpConfig, BottomUp),
        "roi_grid": (RoiGridConfig, RoiGrid),
        "precomputed": (PrecomputedConfig, lambda config, _: Precomputed(config)),
    },
    expects="a pair of settings (an EncoderConfig whose field `name` has that name as its default) and a function that "
    "makes the encoder from them",
    accepts=partial(is_settings_and_part, settings=EncoderConfig),
)


def encoder_config(content: dict[str, Any]) -> EncoderConfig:
    """The settings of an encoder by its name: ours, or a backbone of timm.

    Raises:
        RecipeError: neither we nor timm know the name, or timm has no such weights of the backbone.
    """
    name = str(content.get("name", ""))
    if name in ENCODERS:
        return ENCODERS[name][0].model_validate(content)
    with without_compiler():
        import timm  # slow to import

    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        close = nearest(name, [*ENCODERS, *timm.list_models()]).split("Known:")[0].strip()
        raise RecipeError(
            f'There is no encoder "{name}"; {close + " " if close else ""}known are {", ".join(ENCODERS)} and the '
            "backbones of timm (timm.list_models())."
        )
    if tag and tag not in (tags := [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]):
        raise RecipeError(f'timm has no weights "{tag}" of {architecture}; {nearest(tag, tags)}.')
    return TimmConfig.model_validate(content)


def build_encoder(config: EncoderConfig, load_weights: bool = True) -> Encoder:
    """Make the encoder that the settings name.

    Args:
        config: from `encoder_config`.
        load_weights: fetch pretrained weights; false where a checkpoint brings them.
    """
    name = config.name  # type: ignore[attr-defined]
    make: Callable[[Any, bool], Encoder] = ENCODERS[name][1] if name in ENCODERS else TimmGrid
    with torch.random.fork_rng(devices=(), enabled=config.seed is not None):
        if config.seed is not None:
            torch.manual_seed(config.seed)
        encoder = make(config, load_weights)
    if not config.trained:
        encoder.requires_grad_(False)
    return encoder.train()  # what is frozen, into eval mode
