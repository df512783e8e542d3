"""Checking the content of a recipe: all wrong keys and values at once, each with its sentence."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any, get_args

from pydantic import ValidationError

from showtell.checkpoint import encoder_and_model
from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.errors import RecipeError, nearest
from showtell.features import ENCODERS, EncoderConfig, encoder_config
from showtell.features.timm_grid import TimmConfig
from showtell.hub import find_checkpoint
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.training.recipe import DataConfig, Recipe, TrainingConfig, VocabularyConfig
from showtell.training.recipe_conflicts import conflicts

_SHORT = reprlib.Repr()  # for values in messages
_SHORT.maxstring = _SHORT.maxother = 200
shorten = _SHORT.repr

_FIXED: dict[str, type[Config]] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_BY_NAME: dict[str, Mapping[str, tuple[type[Config], Any]]] = {"model": MODELS, "objective": OBJECTIVES}
SECTIONS = tuple(Recipe.model_fields)


def make_recipe(content: dict[str, Any], source: str = "the recipe") -> Recipe:
    """Check the content of a recipe.

    Raises:
        RecipeError: any key or value is wrong; all problems are listed, with the nearest valid key.
        CheckpointError: encoder or model are left to a checkpoint that is missing or damaged.
    """
    problems: list[str] = []
    content = _completed(content)
    for key in content:
        if key not in SECTIONS:
            problems.append(f"{key}: no such section; {nearest(str(key), SECTIONS)}")
    sections: dict[str, Any] = {}
    for section in SECTIONS:
        sections[section] = _check_section(section, content.get(section, {}), problems)
    problems += conflicts(**sections)
    refuse(problems, source)
    data, encoder = sections["data"], sections["encoder"]
    if data.features is not None and data.features.endswith("/"):
        sections["data"] = data.model_copy(update={"features": encoder.store_of(data.path, data.features)})
    return Recipe(**sections)


def _completed(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a recipe whose encoder and model, where they have no name, are those that it starts from."""
    training = content.get("training")
    start = training.get("start_from") if isinstance(training, dict) else None
    given = {section: content.get(section) or {} for section in ("encoder", "model")}
    left = [section for section, values in given.items() if isinstance(values, dict) and "name" not in values]
    if not left or not isinstance(start, str):
        return content
    settings = encoder_and_model(find_checkpoint(start))
    return content | {section: settings[section] | given[section] for section in left}


def make_encoder_config(content: dict[str, Any], source: str) -> EncoderConfig:
    """Check the settings of an encoder alone, as they stand in a recipe's section.

    Args:
        content: with `name`.
        source: what messages call it.

    Raises:
        RecipeError: any key or value is wrong; all problems are listed.
    """
    problems: list[str] = []
    config = _check_section("encoder", content, problems)
    refuse(problems, source)
    assert isinstance(config, EncoderConfig)
    return config


def refuse(problems: Collection[str], source: str, consequence: str = "") -> None:
    """List the problems of a recipe, a line for each.

    Raises:
        RecipeError: there are some.
    """
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError(f"{source} has {count}{consequence}:" + "".join(f"\n  {problem}" for problem in problems))


def _check_section(section: str, values: Any, problems: list[str]) -> Config | None:
    """The settings of a section, or None with the problems that they have."""
    if not isinstance(values, dict):
        problems.append(f"{section}: should be a mapping of keys to values, got {shorten(values)}")
        return None
    if section not in _FIXED and not isinstance(values.get("name"), str):
        known = [*ENCODERS, "the backbones of timm"] if section == "encoder" else sorted(_BY_NAME[section])
        hint = "" if section == "objective" else "; with training.start_from it may be left out"
        problems.append(f"{section}.name: a name is needed; known: {', '.join(known)}{hint}")
        return None
    try:
        return _make_section(section, values)
    except ValidationError as error:
        errors = error.errors()
        problems += [_sentence(section, problem, values) for problem in errors]
        if all(problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1 for problem in errors):
            extra = {problem["loc"][0] for problem in errors}  # without them, what else is wrong can be said as well
            return _check_section(section, {key: value for key, value in values.items() if key not in extra}, problems)
    except RecipeError as error:
        problems.append(f"{section}.name: {error}")
    return None


def _make_section(section: str, values: dict[str, Any]) -> Config:
    if section == "encoder":
        return encoder_config(values)
    return _section_type(section, values).model_validate(values)


def _section_type(section: str, values: dict[str, Any]) -> type[Config]:
    """The settings class of a section, by its name where it has several."""
    if section in _FIXED:
        return _FIXED[section]
    if section == "encoder":
        return ENCODERS[values["name"]][0] if values.get("name") in ENCODERS else TimmConfig
    known = _BY_NAME[section]
    name = values.get("name")
    if not isinstance(name, str) or name not in known:
        raise RecipeError(f'there is no {section} "{name}"; {nearest(str(name), known)}')
    return known[name][0]


def _sentence(section: str, problem: Any, values: dict[str, Any]) -> str:
    """One pydantic problem in words: which key, what was given, what is allowed."""
    path = ".".join([section, *[str(part) for part in problem["loc"]]])
    if problem["type"] == "extra_forbidden":
        inner: Any = _section_type(section, values)
        for part in problem["loc"][:-1]:
            inner, values = inner.model_fields[part].annotation, values[part]
            inner = next((kind for kind in get_args(inner) if kind is not NoneType), inner)  # of settings or null
            if inner is EncoderConfig:  # an encoder within an encoder
                inner = _section_type("encoder", values)
        key = str(problem["loc"][-1])
        owners = _others_with(section, key) if len(problem["loc"]) == 1 and "name" in values else []
        if owners:
            return (
                f"{path}: no key of {values['name']}, but of {' and of '.join(owners)}; leave it out, or change "
                f"{section}.name. Keys of {values['name']}: {', '.join(sorted(inner.model_fields))}"
            )
        return f"{path}: no such key; {nearest(key, inner.model_fields)}"
    if problem["type"] == "missing":
        return f"{path}: this key is needed and missing"
    if problem["type"] == "value_error":  # our own sentence, which pydantic introduces as a "Value error"
        if isinstance(problem["input"], dict):  # of a whole section, whose keys the sentence names
            return f"{path}: {problem['ctx']['error']}"
        return f"{path}: {problem['ctx']['error']}, got {shorten(problem['input'])}"
    message = problem["msg"][0].lower() + problem["msg"][1:]
    if problem["type"] == "bool_parsing":
        message = "should be true or false"
    return f"{path}: {message}, got {shorten(problem['input'])}"


def _others_with(section: str, key: str) -> list[str]:
    """The names of what a section may hold that do have a key."""
    known: Mapping[str, tuple[type[Config], Any]] = ENCODERS if section == "encoder" else _BY_NAME.get(section, {})
    return sorted(name for name, (config, _) in known.items() if key in config.model_fields)
