"""Reading a recipe: a YAML file, and `section.key=value` overrides on top of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from showtell.errors import DataError, RecipeError
from showtell.files import read_text
from showtell.recipes import find_recipe, recipe_name
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import SECTIONS, make_recipe


def load_recipe(recipe: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply overrides.

    Args:
        recipe: the path of a YAML file, or the name of a recipe of showtell, such as "folder/sat_soft".
        overrides: "section.key=value" each, the value in YAML.

    Raises:
        RecipeError: there is no such recipe, it is not YAML, or any key or value is wrong; all problems are listed.
    """
    path = find_recipe(recipe)
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
    apply_overrides(content, overrides)
    return make_recipe(content, str(recipe))


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
    except yaml.YAMLError as error:  # of a character that no text holds
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def as_yaml(value: Any) -> str:
    """A value as it stands behind the equals sign of an override."""
    return yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]


def apply_overrides(content: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each "section.key=value" in the content of a recipe, in place; a RecipeError if one is not of that form."""
    for override in overrides:
        path, equals, text = override.partition("=")
        *parents, key = path.split(".")
        if not (equals and parents and key and all(parents)):
            raise RecipeError(f'"{override}" is no override; write section.key=value, for example training.epochs=3.')
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise RecipeError(f'The value in "{override}" is not valid YAML ({error}); put it in quotes.') from error
        inner = content
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise RecipeError(f'"{override}" reaches into {parent}, which holds a value and no keys.')
        inner[key] = value
