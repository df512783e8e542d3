"""Every recipe is loaded and built; a new one is found by walking the folder."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import yaml

from showtell.features import build_encoder
from showtell.models import build_decoder
from showtell.objectives import build_objective
from showtell.training import load_recipe

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
FILES = sorted(RECIPES.rglob("*.yaml"))
NEEDED = (
    "data.path", "encoder.name", "model.name", "objective.name", "training.epochs", "training.batch_size",
    "training.learning_rate", "training.seed", "decoding.num_beams",
)  # fmt: skip


def test_there_are_recipes():
    assert {f"{file.parent.name}/{file.stem}" for file in FILES} >= {"scenes/sat_soft", "coco-mini/sat_soft"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_recipe_can_be_built_and_says_what_to_expect(file: Path):
    recipe = load_recipe(file)
    encoder = build_encoder(recipe.encoder, load_weights=False)
    sizes = {"feature_size": encoder.feature_size, "vocabulary_size": 50}
    build_decoder(recipe.model, **sizes)
    build_objective(recipe.objective, **sizes)
    content = yaml.safe_load(file.read_text())
    for key in NEEDED:
        section, name = key.split(".")
        assert name in content[section], f"{file.name} leaves out {key}"
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert any(f"showtell train recipes/{file.parent.name}/{file.name}" in line for line in head)
    assert any("measured by us on" in line or "published in" in line or "not measured" in line for line in head)


def test_the_quickstart_follows_the_recipe_for_scenes():
    quickstart = yaml.safe_load(resources.files("showtell.quickstart").joinpath("recipe.yaml").read_text())
    recipe = yaml.safe_load((RECIPES / "scenes" / "sat_soft.yaml").read_text())
    del recipe["data"]["path"]
    assert quickstart == recipe
