"""Objectives ask for capabilities: they know no model, and whoever has what they need can be trained by them."""

import pytest

from showtell.models import MODELS, Capability
from showtell.models.contract import DecoderConfig
from showtell.models.sat import SatConfig
from showtell.models.stack import StackConfig
from showtell.objectives import OBJECTIVES
from showtell.objectives.compatibility import contradictions


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_a_model_says_it_can_be_set_to_it_can(name):
    config = MODELS[name][0]
    for capability, settings in config.provides.items():
        assert capability in config(**settings).capabilities


class NewConfig(DecoderConfig):
    """A model that nobody here knows of, which samples attention where it is asked to."""

    provides = {Capability.SAMPLED_ATTENTION: {"gaze": "drawn"}}  # noqa: RUF012
    name: str = "new"
    gaze: str = "even"


CONTRADICTIONS = {  # objective and gaze to the sentence
    ("cross_entropy", "even"): "",
    ("self_critical", "drawn"): "",
    ("hard_attention", "drawn"): "",
    ("hard_attention", "even"): (
        "objective.name=hard_attention and model.gaze=even contradict each other: it needs a model that samples the "
        "regions it attends to; set model.name=sat and model.attention=hard, or model.name=new and model.gaze=drawn, "
        "or objective.name=cross_entropy"
    ),
    ("cross_entropy", "drawn"): (
        "model.gaze=drawn and objective.name=cross_entropy contradict each other: sampled regions get no gradient from "
        "it; set objective.name=hard_attention, or model.gaze=even"
    ),
    ("coarse_to_fine", "even"): (
        "objective.name=coarse_to_fine and model.name=new contradict each other: it needs a model with several stages; "
        "set model.name=stack, or objective.name=self_critical"
    ),
}


def test_a_new_model_is_held_to_what_it_declares(monkeypatch):
    monkeypatch.setitem(MODELS.builtin, "new", (NewConfig, MODELS["sat"][1]))
    for (objective, gaze), sentence in CONTRADICTIONS.items():
        assert contradictions(OBJECTIVES[objective][0](), NewConfig(gaze=gaze)) == ([sentence] if sentence else [])


def test_a_setting_without_effect_on_the_model_is_refused():
    weighted = OBJECTIVES["cross_entropy"][0](earlier_stage_weight=0)
    assert contradictions(weighted, StackConfig()) == []
    assert contradictions(weighted, SatConfig()) == [
        "objective.earlier_stage_weight=0 has no effect with model.name=sat: it needs a model with several stages; "
        "leave it out, or set model.name=stack"
    ]
