"""Objectives: the losses. They depend on no model, only on capabilities and the fields of `Output`."""

from __future__ import annotations

from functools import partial

from showtell.objectives import adversarial
from showtell.objectives.coarse_to_fine import CoarseToFine, CoarseToFineConfig
from showtell.objectives.contract import Objective, ObjectiveConfig
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.hard_attention import HardAttention, HardAttentionConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig
from showtell.registry import Registry, is_settings_and_part

# name: (settings, objective). Made as Objective(config, feature_size=, vocabulary_size=), called as
# objective(batch, features, decoder) -> Terms. Its own parameters train with the model.
OBJECTIVES: Registry[tuple[type[ObjectiveConfig], type[Objective]]] = Registry(
    "showtell.objectives",
    {
        "adversarial": (adversarial.AdversarialConfig, adversarial.Adversarial),
        "adversarial_pretraining": (adversarial.AdversarialPretrainingConfig, adversarial.AdversarialPretraining),
        "coarse_to_fine": (CoarseToFineConfig, CoarseToFine),
        "cross_entropy": (CrossEntropyConfig, CrossEntropy),
        "hard_attention": (HardAttentionConfig, HardAttention),
        "self_critical": (SelfCriticalConfig, SelfCritical),
    },
    expects="a pair of an ObjectiveConfig, whose field `name` has that name as its default, and an Objective class",
    accepts=partial(is_settings_and_part, part=Objective, settings=ObjectiveConfig),
)

__all__ = ["OBJECTIVES", "Objective", "ObjectiveConfig", "build_objective"]


def build_objective(config: ObjectiveConfig, *, feature_size: int, vocabulary_size: int) -> Objective:
    """Make the objective that the settings name."""
    return OBJECTIVES[config.name][1](config, feature_size=feature_size, vocabulary_size=vocabulary_size)
