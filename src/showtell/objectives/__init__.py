"""Objectives: what is minimised. They know no model, only what `output` carries."""

from __future__ import annotations

from functools import partial

from showtell.config import Config
from showtell.objectives.adversarial import (
    Adversarial,
    AdversarialConfig,
    AdversarialPretraining,
    AdversarialPretrainingConfig,
)
from showtell.objectives.coarse_to_fine import CoarseToFine, CoarseToFineConfig
from showtell.objectives.contract import Objective
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.hard_attention import HardAttention, HardAttentionConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig
from showtell.registry import Registry, is_settings_and_part

# name: (settings, objective). Made as Objective(config, feature_size=, vocabulary_size=), called as
# objective(batch, features, decoder) -> Terms. Its own parameters train with the model.
OBJECTIVES: Registry[tuple[type[Config], type[Objective]]] = Registry(
    "showtell.objectives",
    {
        "adversarial": (AdversarialConfig, Adversarial),
        "adversarial_pretraining": (AdversarialPretrainingConfig, AdversarialPretraining),
        "coarse_to_fine": (CoarseToFineConfig, CoarseToFine),
        "cross_entropy": (CrossEntropyConfig, CrossEntropy),
        "hard_attention": (HardAttentionConfig, HardAttention),
        "self_critical": (SelfCriticalConfig, SelfCritical),
    },
    expects="a pair of settings (a Config whose field `name` has that name as its default) and an Objective class",
    accepts=partial(is_settings_and_part, part=Objective),
)

__all__ = ["OBJECTIVES", "Objective", "build_objective"]


def build_objective(config: Config, *, feature_size: int, vocabulary_size: int) -> Objective:
    """Make the objective that the settings name."""
    _, objective = OBJECTIVES[config.name]  # type: ignore[attr-defined]
    return objective(config, feature_size=feature_size, vocabulary_size=vocabulary_size)
