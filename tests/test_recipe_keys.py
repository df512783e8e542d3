"""docs/recipe_keys.md has every key that a recipe may have, as the source has them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

from showtell.config import flat

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "src" / "showtell" / "recipes").rglob("*.yaml"))
BY_NAME = ("encoder", "model", "objective")
PAGE = (ROOT / "docs" / "recipe_keys.md").read_text(encoding="utf-8")


def rows(part: str) -> dict[str, list[str]]:
    """Key to values, default and meaning, of the tables of a part of the page."""
    lines = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", part, flags=re.MULTILINE)
    return {key: cells.split(" | ") for key, cells in lines}


def test_the_page_is_what_the_script_makes():
    made = runpy.run_path(str(ROOT / "scripts" / "recipe_keys"))["page"]()
    assert made == PAGE, "run .venv/bin/python scripts/recipe_keys --write"


def test_it_says_values_defaults_and_meanings():
    (nic,) = re.findall(r"### `model.name: nic`\n(.*?)\n### ", PAGE, flags=re.DOTALL)
    assert rows(nic)["model.image"] == [
        "`state`, `input`",
        "`state`",
        "the image as first hidden state, or as first input",
    ]
    every = rows(PAGE)
    assert every["training.epochs"][:2] == ["whole number ≥ 1", "needed"]
    assert every["training.ema_decay"][:2] == ["number ≥ 0, < 1 or `null`", "`null`"]
    assert every["training.reward_watchdog.patience"][:2] == ["whole number ≥ 1", "`2`"]
    assert every["encoder.trained"][0] == (
        "`true`, `false` or list of (whole number or text) or mapping of (whole number or text) to number"
    )
    assert every["encoder.trained"][2].startswith("true: all of it; false: none; or some stages")  # lines above a field


def keys_of(section: str, name: str) -> set[str]:
    """The keys of a section under a name; of an encoder without a table of its own, those of timm's backbones."""
    titles = rf"`{section}\.name: {name}`", rf"`{section}\.name`: any"
    tables = [re.findall(rf"(?s)### {title}.*?(?=\n##|\Z)", PAGE) for title in titles]
    return set(rows(next(filter(None, tables))[0])) | {f"{section}.name"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_key_of_every_recipe_is_there(file: Path):
    recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    for section, content in recipe.items():
        known = keys_of(section, content["name"]) if section in BY_NAME else set(rows(PAGE))
        if backbone := content.pop("backbone", None):  # an encoder within an encoder
            assert {f"encoder.{key}" for key in backbone} <= keys_of("encoder", backbone["name"])
        assert flat({section: content}).keys() <= known
