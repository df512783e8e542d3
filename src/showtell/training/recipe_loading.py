"""Reading a recipe: a YAML file, and `section.key=value` overrides on top of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from showtell.errors import DataError, RecipeError
from showtell.files import read_text
from showtell.recipes import find_recipe, recipe_name
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import SECTIONS, make_recipe


def load_recipe(
    recipe: Recipe | Path | str | Mapping[str, Any],
    overrides: Mapping[str, Any] | Sequence[str] = (),
    **sections: Mapping[str, Any],
) -> Recipe:
    """Read a recipe and apply overrides.

    >>> load_recipe("scenes/sat_soft", {"training.epochs": 1}, model={"hidden_size": 8}).model.hidden_size
    8

    Args:
        recipe: the path of a YAML file, a name of `list_recipes`, its content, or a `Recipe` to change.
        overrides: {"section.key": value}, or "section.key=value" each with the value in YAML, as on the command line.
        sections: overrides by section, such as training={"epochs": 1}; one with another `name` replaces the section.

    Raises:
        RecipeError: there is no such recipe, it is not YAML, or any key or value is wrong; all problems are listed.
    """
    if isinstance(recipe, Path | str):
        content, source = _read(find_recipe(recipe)), str(recipe)
    else:
        source = "the recipe"
        content = recipe.model_dump(mode="json") if isinstance(recipe, Recipe) else copy.deepcopy(dict(recipe))
    apply_overrides(content, overrides)
    for section, values in sections.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            raise RecipeError(
                f"{section}={values!r} is no section of a recipe with values; write it like training={{'epochs': 3}}. "
                f"Sections: {', '.join(SECTIONS)}."
            )
        before = content.get(section)
        if isinstance(before, dict) and values.get("name", before.get("name")) != before.get("name"):
            del content[section]  # its keys are those of another model, encoder or objective
        apply_overrides(content, {f"{section}.{key}": value for key, value in values.items()})
    return make_recipe(content, source)


def _read(path: Path) -> dict[str, Any]:
    """The content of a recipe's file, with its name if it is one of ours."""
    try:
        content = parse_yaml(read_text(path, "YAML"))
    except DataError as error:
        raise RecipeError(str(error)) from error
    except ValueError as error:
        raise RecipeError(f"The recipe {path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise RecipeError(f"The recipe {path} is empty or no mapping; it needs the sections {', '.join(SECTIONS)}.")
    if (name := recipe_name(path)) and isinstance(content.get("training"), dict):
        content["training"].setdefault("recipe", name)
    return content


class _Loader(yaml.SafeLoader):
    """YAML without a key twice in a mapping: the second would silently replace the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f'the key "{key.value}" is there twice', problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """The content of a YAML text; a ValueError if it is none, has a key twice, or a value that Python cannot hold."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f", at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{error.problem}{position}") from error
    except (yaml.YAMLError, LookupError, AttributeError) as error:  # no character of a text, or !!bool of no truth
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def as_yaml(value: Any) -> str:
    """A value as it stands behind the equals sign of an override."""
    return yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]


def apply_overrides(content: dict[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> None:
    """Set each {"section.key": value} or "section.key=value" in the content of a recipe, in place."""
    if isinstance(overrides, str):
        overrides = (overrides,)
    pairs = overrides.items() if isinstance(overrides, Mapping) else map(_parse_override, overrides)
    for path, value in pairs:
        *parents, key = path.split(".")
        if not (parents and key and all(parents)):
            raise RecipeError(f'"{path}" is no override; write section.key=value, for example training.epochs=3.')
        inner = content
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise RecipeError(f'"{path}" reaches into {parent}, which holds a value and no keys.')
        inner[key] = str(value) if isinstance(value, Path) else value


def _parse_override(override: str) -> tuple[str, Any]:
    """Key and value of a "section.key=value"."""
    path, equals, text = override.partition("=")
    if not equals:
        raise RecipeError(f'"{override}" is no override; write section.key=value, for example training.epochs=3.')
    try:
        return path, parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f'The value in "{override}" is not valid YAML ({error}); put it in quotes.') from error
