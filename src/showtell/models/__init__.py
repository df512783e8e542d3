"""Models: one file per paper, on one contract (`contract.py`)."""

from __future__ import annotations

from fnmatch import filter as matching
from functools import partial
from typing import Any

from showtell.errors import UsageError, nearest
from showtell.models.att2in import Att2InConfig, Att2InDecoder
from showtell.models.contract import Capability, Decoder, DecoderConfig, Output, State, as_overrides, spread, take_rows
from showtell.models.hacap import HacapConfig, HacapDecoder
from showtell.models.nic import NicConfig, NicDecoder
from showtell.models.sat import SatConfig, SatDecoder
from showtell.models.stack import StackConfig, StackDecoder
from showtell.models.transformer import TransformerConfig, TransformerDecoder
from showtell.models.updown import UpDownConfig, UpDownDecoder
from showtell.registry import Registry, is_settings_and_part

# name: (settings, decoder). A decoder is made as Decoder(config, feature_size=, vocabulary_size=).
MODELS: Registry[tuple[type[DecoderConfig], type[Decoder]]] = Registry(
    "showtell.models",
    {
        "att2in": (Att2InConfig, Att2InDecoder),
        "hacap": (HacapConfig, HacapDecoder),
        "nic": (NicConfig, NicDecoder),
        "sat": (SatConfig, SatDecoder),
        "stack": (StackConfig, StackDecoder),
        "transformer": (TransformerConfig, TransformerDecoder),
        "updown": (UpDownConfig, UpDownDecoder),
    },
    expects="a pair of a DecoderConfig, whose field `name` has that name as its default, and a Decoder class",
    accepts=partial(is_settings_and_part, part=Decoder, settings=DecoderConfig),
)

__all__ = [
    "MODELS", "Capability", "Decoder", "DecoderConfig", "Output", "State", "build_decoder", "create_model",
    "list_models", "settings_with", "spread", "take_rows",
]  # fmt: skip


def list_models(filter: str = "*") -> list[str]:
    """The names of the models, those of installed packages included, that match a pattern such as "*down"."""
    return matching(sorted(MODELS), filter)


def create_model(name: str, *, feature_size: int, vocabulary_size: int, **settings: Any) -> Decoder:
    """Make a decoder with fresh weights.

    Args:
        name: of `list_models`.
        feature_size: D, of the vectors that it attends to.
        vocabulary_size: V, number of words, special tokens included.
        settings: those of the model, such as hidden_size=64; the `model` section of a recipe has the same.

    Raises:
        UsageError: there is no such model, or no such setting or value.
    """
    if name not in MODELS:
        raise UsageError(f'There is no model "{name}": {nearest(name, MODELS)}.')
    kind = MODELS[name][0]
    if unknown := [key for key in settings if key not in kind.model_fields]:
        raise UsageError(f'{name} has no setting "{unknown[0]}": {nearest(unknown[0], kind.model_fields)}.')
    return build_decoder(kind.checked(settings), feature_size=feature_size, vocabulary_size=vocabulary_size)


def build_decoder(config: DecoderConfig, *, feature_size: int, vocabulary_size: int) -> Decoder:
    """Make the decoder that the settings name, with fresh weights."""
    return MODELS[config.name][1](config, feature_size=feature_size, vocabulary_size=vocabulary_size)


def settings_with(capability: Capability) -> str:
    """The settings of the models that have a capability, as overrides: "model.name=sat and model.attention=hard"."""
    configs = ((name, config) for name, (config, _) in MODELS.items() if capability in config.provides)
    return ", or ".join(as_overrides({"name": name, **config.provides[capability]}) for name, config in configs)
