"""The README's first screen and its tree tell the truth."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from typer.main import get_command

from showtell.cli.app import app
from showtell.recipes import recipe_names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_tree_has_every_file_with_its_first_line():
    page = runpy.run_path(str(ROOT / "scripts" / "tree"))["page"]()
    assert (ROOT / "docs" / "tree.md").read_text(encoding="utf-8") == page, "run scripts/tree --write"


def test_every_verb_that_is_named_exists():
    verbs = set(re.findall(r"^showtell (\w+)(?=\s)", README, flags=re.MULTILINE))
    assert verbs >= {"quickstart", "caption", "train", "data", "score"}
    assert verbs <= set(get_command(app).commands)  # type: ignore[attr-defined]


def test_every_file_that_is_named_exists():
    for name in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / name).exists(), name


def test_every_recipe_that_is_named_exists():
    folders = "|".join({name.partition("/")[0] for name in recipe_names()})
    named = set(re.findall(rf"(?<![/\w])(?:{folders})/\w+", README))
    assert "folder/sat_soft" in named
    assert named <= set(recipe_names())
