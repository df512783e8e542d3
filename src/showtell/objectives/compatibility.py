"""Which objective can train which model: the needs of an objective compared with the capabilities of a model."""

from __future__ import annotations

from showtell.config import flat
from showtell.models import DecoderConfig, settings_with
from showtell.models.contract import Capability, as_overrides
from showtell.objectives import OBJECTIVES
from showtell.objectives.contract import Objective, ObjectiveConfig


def contradictions(objective: ObjectiveConfig, model: DecoderConfig) -> list[str]:
    """A sentence for each reason why an objective cannot train a model; empty if it can."""
    kind = OBJECTIVES[objective.name][1]
    problems = [
        f"objective.name={objective.name} and {as_overrides(missing)} contradict each other: it needs a model "
        f"{capability}; set {settings_with(capability)}, or objective.name={_alternative(kind, model)}"
        for capability in sorted(kind.needs - model.capabilities)
        for missing in [model.missing_settings(capability) or {"name": model.name}]
    ]
    if problems:
        return problems
    default = flat(type(objective).model_validate({"name": objective.name}).model_dump())
    given = {name: value for name, value in flat(objective.model_dump()).items() if value != default.get(name)}
    problems = [
        f"objective.{name}={given[name]:g} has no effect with model.name={model.name}: it needs a model "
        f"{capability}; leave it out, or set {settings_with(capability)}"
        for name, capability in kind.setting_needs.items()
        if capability not in model.capabilities and name in given
    ]
    having = {capability: as_overrides(given or {"name": model.name}) for capability, given in model.provides.items()}
    problems += [
        f"{having[capability]} needs objective.{setting} above 0, which trains its layer; set "
        f"objective.{setting}=1.0, or {_without(model, capability)}"
        for capability, setting in kind.setting_trains.items()
        if capability in model.capabilities and not getattr(objective, setting)
    ]
    return problems + [
        f"{having[capability]} and objective.name={objective.name} contradict each other: {reason}; set "
        f"objective.name={' or '.join(name for name, (_, one) in OBJECTIVES.items() if capability in one.needs)}, or "
        f"{_without(model, capability)}"
        for capability, reason in kind.conflicts.items()
        if capability in model.capabilities
    ]


def _without(model: DecoderConfig, capability: Capability) -> str:
    """The settings that remove a capability from a model."""
    fields = type(model).model_fields
    defaults = {key: fields[key].default for key, value in model.provides[capability].items()}
    return as_overrides(defaults) if defaults and defaults != model.provides[capability] else "another model.name"


def _alternative(kind: type[Objective], model: DecoderConfig) -> str:
    """The nearest base class of this objective that the model can be trained with."""
    names = {objective: name for name, (_, objective) in OBJECTIVES.items()}
    suited = (base for base in kind.__mro__[1:] if base in names and base.needs <= model.capabilities)
    return names.get(next(suited, Objective), "cross_entropy")
