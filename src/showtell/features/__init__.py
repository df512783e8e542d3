"""Features: what the encoders see in an image."""

from __future__ import annotations

from typing import Any

import timm

from showtell.errors import RecipeError, nearest
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.grid import SmallCnn, SmallCnnConfig, TimmConfig, TimmGrid

__all__ = ["ENCODERS", "Encoder", "EncoderConfig", "build_encoder", "encoder_config"]

# name: (settings, encoder); any other name is one of timm's.
ENCODERS: dict[str, tuple[type[EncoderConfig], type[Encoder]]] = {
    "small_cnn": (SmallCnnConfig, SmallCnn),
}


def encoder_config(content: dict[str, Any]) -> EncoderConfig:
    """The settings of an encoder by its name: ours, or a backbone of timm.

    Raises:
        RecipeError: neither we nor timm know the name.
    """
    name = str(content.get("name", ""))
    if name in ENCODERS:
        return ENCODERS[name][0].model_validate(content)
    if not timm.is_model(name.split(".")[0]):
        close = nearest(name, [*ENCODERS, *timm.list_models()]).split("Known:")[0].strip()
        raise RecipeError(
            f'There is no encoder "{name}"; {close + " " if close else ""}known are {", ".join(ENCODERS)} and the '
            "backbones of timm (timm.list_models())."
        )
    return TimmConfig.model_validate(content)


def build_encoder(config: EncoderConfig, load_weights: bool = True) -> Encoder:
    """Make the encoder that the settings name.

    Args:
        config: from `encoder_config`.
        load_weights: fetch pretrained weights; false where a checkpoint brings them.
    """
    if isinstance(config, TimmConfig):
        return TimmGrid(config, load_weights)
    return ENCODERS[config.name][1](config)  # type: ignore[attr-defined]
