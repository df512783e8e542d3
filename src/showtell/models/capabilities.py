"""Capabilities of decoders, declared by their settings.

Objectives, recipes and tests ask for a capability and not for the name of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field

from showtell.config import Config


class Capability(StrEnum):
    """An ability that some decoders have. The value ends a sentence that begins with "a model"."""

    ATTENTION = "that attends to regions"
    SAMPLED_ATTENTION = "that samples the regions it attends to"
    STAGES = "with several stages"
    GOALS = "with subgoals and a discriminator"
    MANAGER = "with a manager of subgoals"
    LABELS = "that scores a caption's words as labels"
    PARALLEL = "that reads all words of a caption at once"


class DecoderConfig(Config):
    """The settings of a decoder, and what a decoder with these settings can do."""

    # Each capability that a decoder of this class may have, with the settings that it takes; {} if it always has it.
    provides: ClassVar[Mapping[Capability, Mapping[str, Any]]] = {}

    name: str = Field(description="Name of the model; a subclass gives the default.")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of a decoder with these settings."""
        return frozenset(capability for capability in self.provides if not self.missing_settings(capability))

    @property
    def stages(self) -> int:
        """The number of distributions of the next word that a step has, from coarse to fine."""
        return 1

    def missing_settings(self, capability: Capability) -> dict[str, Any]:
        """The settings, of those that a capability takes, that have another value here: key to current value."""
        required = self.provides.get(capability, {})
        return {key: getattr(self, key) for key, value in required.items() if getattr(self, key) != value}


def as_overrides(settings: Mapping[str, Any]) -> str:
    """Settings of a model as a recipe's overrides.

    >>> as_overrides({"name": "hacap", "goals": True})
    'model.name=hacap and model.goals=true'
    """
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in settings.items()}
    return " and ".join(f"model.{key}={value}" for key, value in values.items())
