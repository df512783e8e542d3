"""Checking the content of a recipe: all wrong keys and values at once, each with its sentence."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, get_args

from pydantic import ValidationError

from showtell.captioners.opening import TRANSFORMERS, recipe_sections
from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.errors import RecipeError, nearest
from showtell.features import ENCODERS, EncoderConfig, encoder_config
from showtell.features.timm_grid import TimmConfig
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.training.recipe import DataConfig, Recipe, TrainingConfig, VocabularyConfig
from showtell.training.recipe_conflicts import conflicts

SECTIONS = tuple(Recipe.model_fields)
_FIXED: dict[str, type[Config]] = {
    "data": DataConfig, "vocabulary": VocabularyConfig, "training": TrainingConfig, "decoding": DecodingConfig,
}  # fmt: skip
_BY_NAME: dict[str, Mapping[str, tuple[type[Config], Any]]] = {
    "encoder": ENCODERS, "model": MODELS, "objective": OBJECTIVES,
}  # fmt: skip
_SHORT = reprlib.Repr()  # of values in messages
_SHORT.maxstring = _SHORT.maxother = 200


def make_recipe(content: dict[str, Any], source: str = "the recipe") -> Recipe:
    """Check the content of a recipe; a RecipeError lists all problems, with the nearest valid key of each.

    A CheckpointError is for encoder or model that are left to a checkpoint that is missing or damaged.
    """
    content = _completed(content)
    problems = [f"{key}: no such section; {nearest(str(key), SECTIONS)}" for key in content if key not in SECTIONS]
    sections: dict[str, Any] = {
        section: _check_section(section, content.get(section, {}), problems) for section in SECTIONS
    }
    problems += conflicts(**sections)
    _refuse(problems, source)
    data, encoder = sections["data"], sections["encoder"]
    if data.features is not None and data.features.endswith("/"):
        sections["data"] = data.model_copy(update={"features": encoder.store_of(data.path, data.features)})
    return Recipe(**sections)


def make_encoder_config(content: dict[str, Any], source: str) -> EncoderConfig:
    """The settings of an encoder alone, as in a recipe's section; a RecipeError lists all problems, under `source`."""
    problems: list[str] = []
    config = _check_section("encoder", content, problems)
    _refuse(problems, source)
    assert isinstance(config, EncoderConfig)
    return config


def _completed(content: dict[str, Any]) -> dict[str, Any]:
    """A recipe's content; encoder, model and search without a name are those of the checkpoint that it starts from."""
    training = content.get("training")
    start = training.get("start_from") if isinstance(training, dict) else None
    given = {section: content.get(section) or {} for section in ("encoder", "model")}
    left = [section for section, values in given.items() if isinstance(values, dict) and "name" not in values]
    if not isinstance(start, str) or not left:
        return content
    settings, own = recipe_sections(start), content.get("decoding") or {}
    return content | {section: settings[section] | given[section] for section in left} | {
        "decoding": settings["decoding"] | own if isinstance(own, dict) else own
    }  # fmt: skip


def _refuse(problems: Sequence[str], source: str) -> None:
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError(f"{source} has {count}:" + "".join(f"\n  {problem}" for problem in problems))


def _check_section(section: str, values: Any, problems: list[str]) -> Config | None:
    """The settings of a section, or None with the problems that they have."""
    if not isinstance(values, dict):
        problems.append(f"{section}: should be a mapping of keys to values, got {_SHORT.repr(values)}")
        return None
    if section not in _FIXED and not isinstance(values.get("name"), str):
        known = [*ENCODERS, "the backbones of timm"] if section == "encoder" else sorted(_BY_NAME[section])
        hint = "" if section == "objective" else "; with training.start_from it may be left out"
        problems.append(f"{section}.name: a name is needed; known: {', '.join(known)}{hint}")
        return None
    try:
        is_ours = section == "encoder" and values["name"] != TRANSFORMERS
        return encoder_config(values) if is_ours else _settings_of(section, values).model_validate(values)
    except ValidationError as error:
        problems += [_describe(section, problem, values) for problem in error.errors()]
    except RecipeError as error:
        problems.append(f"{section}.name: {error}")
    return None


def _settings_of(section: str, values: Mapping[str, Any]) -> type[Config]:
    """The settings class of a section, by its name where it has several."""
    if section in _FIXED:
        return _FIXED[section]
    known, name = _BY_NAME[section], values["name"]
    if name == TRANSFORMERS and section in ("encoder", "model"):  # no choice, but what a recipe starts from
        from showtell.captioners.hugging_face_adapters import TransformersConfig
        from showtell.captioners.hugging_face_training import TransformersEncoderConfig

        return TransformersConfig if section == "model" else TransformersEncoderConfig
    if name in known:
        return known[name][0]
    if section == "encoder":
        return TimmConfig
    raise RecipeError(f'there is no {section} "{name}"; {nearest(name, known)}')


def _describe(section: str, problem: Any, values: Any) -> str:
    """One problem of pydantic: which key, what was given, what is allowed."""
    *parents, key = problem["loc"] or [""]
    path = ".".join(map(str, [section, *problem["loc"]]))
    if problem["type"] == "extra_forbidden":
        kind: Any = _settings_of(section, values)
        for parent in parents:
            annotation, values = kind.model_fields[parent].annotation, values[parent]
            kind = next((member for member in get_args(annotation) if member is not NoneType), annotation)
        named = {} if parents else _BY_NAME.get(section, {})
        if owners := sorted(name for name, (config, _) in named.items() if key in config.model_fields):
            return (
                f"{path}: no key of {values['name']}, but of {' and of '.join(owners)}; leave it out, or change "
                f"{section}.name. Keys of {values['name']}: {', '.join(sorted(kind.model_fields))}"
            )
        return f"{path}: no such key; {nearest(str(key), kind.model_fields)}"
    if problem["type"] == "missing":
        return f"{path}: this key is needed and missing"
    message = problem["msg"][0].lower() + problem["msg"][1:]
    if problem["type"] == "value_error":  # a sentence of ours, which pydantic introduces as a "Value error"
        message = str(problem["ctx"]["error"])
        if isinstance(problem["input"], dict):  # of a whole section, whose keys the sentence names
            return f"{path}: {message}"
    return f"{path}: {message}, got {_SHORT.repr(problem['input'])}"
