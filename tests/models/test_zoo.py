"""The contract of every decoder, by `showtell.testing`, with its other equations too. A new one needs no edit here."""

from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args

import pytest

from showtell import testing
from showtell.models import MODELS, Decoder, DecoderConfig
from showtell.testing import DECODER_CHECKS, check_gradients, check_steps, shrink

# Combinations of settings whose equations differ from those of a model as it comes.
COMBINATIONS: dict[str, dict[str, Any]] = {
    "hacap worker": {"name": "hacap", "goals": False, "highway": False, "layers": 2},
    "nic rnn": {"name": "nic", "cell": "rnn", "layers": 2},
    "nic lstm input": {"name": "nic", "cell": "lstm", "image": "input", "layers": 3},
    "sat hard": {"name": "sat", "attention": "hard", "init_layers": 2, "project_features": 8},
    "sat tutorial": {
        "name": "sat", "attention_activation": "relu", "gate_per": "channel", "init_activation": "none",
        "readout": "hidden",
    },
    "stack of one": {"name": "stack", "fine_stages": 0},
    "transformer luo": {
        "name": "transformer", "heads": 2, "layer_norm": "unbiased", "normalise_features": True,
        "feature_batch_norm": "before_and_after", "box_features": "normalised", "input_dropout": 0.5,
    },
    "updown elbaz": {"name": "updown", "attention_activation": "relu", "weight_norm": True, "multi_label": True},
    "updown luo": {
        "name": "updown", "project_features": 8, "attention_bias": True, "mean_projection": "own",
        "embedding_relu": True, "feature_batch_norm": "before_and_after", "normalise_features": True,
        "box_features": "appended", "input_dropout": 0.5,
    },
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {name: {"name": name} for name in sorted(MODELS)} | COMBINATIONS


def single_changes(name: str) -> Iterator[dict[str, Any]]:
    """The settings of a model with each other value of each of its choices."""
    for key, field in MODELS[name][0].model_fields.items():
        values = (True, False) if field.annotation is bool else get_args(field.annotation)
        for value in values if key != "name" and NoneType not in values else ():
            if value != field.default:
                yield {"name": name, key: value}


def config_of(settings: dict[str, Any]) -> DecoderConfig:
    return shrink(MODELS[settings["name"]][0], **settings)


def build(config: DecoderConfig) -> Decoder:
    return testing.build(config, MODELS[config.name][1])


def make(kind: str) -> Decoder:
    return build(config_of(ZOO[kind]))


@pytest.mark.parametrize("check", DECODER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ZOO)
def test_contract(name, check):
    config, decoder = MODELS[ZOO[name]["name"]]
    check(shrink(config, **ZOO[name]), decoder)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_choice_trains_all_its_weights_and_reads_given_words_as_steps_do(name):
    config, decoder = MODELS[name]
    for settings in single_changes(name):
        check_gradients(shrink(config, **settings), decoder, ("cross_entropy", "hard_attention"))
        check_steps(shrink(config, **settings), decoder)
