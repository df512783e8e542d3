"""Models: one file per paper, on one contract (`contract.py`)."""

from __future__ import annotations

from functools import partial

from showtell.models.att2in import Att2InConfig, Att2InDecoder
from showtell.models.capabilities import Capability, DecoderConfig, as_overrides
from showtell.models.contract import Decoder, Output, State, spread, take_rows
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
    "MODELS", "Capability", "Decoder", "DecoderConfig", "Output", "State", "build_decoder", "settings_with", "spread",
    "take_rows",
]  # fmt: skip


def build_decoder(config: DecoderConfig, *, feature_size: int, vocabulary_size: int) -> Decoder:
    """Make the decoder that the settings name, with fresh weights."""
    return MODELS[config.name][1](config, feature_size=feature_size, vocabulary_size=vocabulary_size)


def settings_with(capability: Capability) -> str:
    """The settings of the models that have a capability, as overrides: "model.name=sat and model.attention=hard"."""
    providers = [
        {"name": name, **config.provides[capability]}
        for name, (config, _) in MODELS.items()
        if capability in config.provides
    ]
    return ", or ".join(as_overrides(settings) for settings in providers)
