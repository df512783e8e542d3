"""The recipes that come with showtell, found by name: `folder/sat_soft` from any working directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import filter as matching
from pathlib import Path

from showtell.errors import RecipeError, nearest

__all__ = ["FOLDER", "Published", "find_recipe", "list_recipes", "published_for", "recipe_name"]

FOLDER = Path(__file__).parent  # where the recipes are


@dataclass(frozen=True)
class Published:
    """A row of a paper's table."""

    recipe: str  # the paper's set-up
    source: str
    scores: Mapping[str, float]  # in the paper's unit, 100 times ours


def published_for(recipe: str) -> Published | None:
    """The published row that a recipe, or a smaller form of it, is to be held against."""
    for row in json.loads((FOLDER / "published.json").read_text(encoding="utf-8")):
        if recipe in row["recipes"]:
            return Published(row["recipes"][0], row["source"], row["scores"])
    return None


def list_recipes(filter: str = "*") -> list[str]:
    """The names of the recipes of showtell, sorted, that match a pattern such as "scenes/*"."""
    return matching(sorted(name for file in FOLDER.rglob("*.yaml") if (name := recipe_name(file))), filter)


def recipe_name(file: Path) -> str | None:
    """The name of a file of ours; None for a recipe from elsewhere."""
    return file.relative_to(FOLDER).with_suffix("").as_posix() if file.is_relative_to(FOLDER) else None


def find_recipe(recipe: Path | str) -> Path:
    """The file of a recipe.

    Args:
        recipe: a path, which takes precedence, or a name; "recipes/" before it and ".yaml" behind it are ignored.

    Raises:
        RecipeError: there is neither such a file nor such a name; the message has the nearest names.
    """
    path = Path(recipe)
    name = path.as_posix().removeprefix("recipes/").removesuffix(".yaml")
    names = list_recipes()
    if name in names and not path.is_file():
        return FOLDER / f"{name}.yaml"
    if path.exists():
        return path
    inside = [known for known in names if known.startswith(f"{name.partition('/')[0]}/")]
    same_file = [known for known in names if known.partition("/")[2] == name.rpartition("/")[2]]
    folders = {f"{known.partition('/')[0]}/" for known in names}
    raise RecipeError(
        f"There is no recipe {recipe}: it is not the path of a file, and no recipe of showtell has that name; "
        f"{nearest(name, same_file or inside or folders)}."
    )
