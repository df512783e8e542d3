"""Old names: recipes are answered with the new one, checkpoints open."""

from __future__ import annotations

import shutil

import pytest
from safetensors.torch import load_file

from showtell import Captioner, renamed
from showtell.checkpoint import SETTINGS, WEIGHTS, _fingerprint
from showtell.errors import RecipeError
from showtell.files import read_json, write_bytes, write_json
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.training.recipe_checks import make_recipe


def test_a_recipe_with_an_old_key_is_answered_with_the_new_one(tiny_recipe):
    tiny_recipe["training"]["pilot"] = None
    with pytest.raises(RecipeError, match=r"training\.pilot: this key is called training\.reward_watchdog now; rename"):
        make_recipe(tiny_recipe)


def test_a_recipe_with_an_old_value_is_answered_with_the_new_one(tiny_recipe, monkeypatch):
    monkeypatch.setitem(renamed.VALUES, "training.schedule", {"flat": "constant"})
    tiny_recipe["training"]["schedule"] = "flat"
    with pytest.raises(RecipeError, match=r"training\.schedule: flat is called constant now; rename it"):
        make_recipe(tiny_recipe)


def test_a_checkpoint_with_old_names_opens(tiny_checkpoint, tiny_scenes, tmp_path, monkeypatch):
    from safetensors.torch import save

    folder = tmp_path / "old"
    shutil.copytree(tiny_checkpoint, folder)
    settings, tensors = read_json(folder / SETTINGS), load_file(folder / WEIGHTS)
    settings["decoding"]["beam_width"] = settings["decoding"].pop("num_beams")
    weights = save({name.replace("decoder.embedding.", "decoder.words."): value for name, value in tensors.items()})
    settings["fingerprints"]["weights"] = _fingerprint(weights)
    write_bytes(folder / WEIGHTS, weights)
    write_json(folder / SETTINGS, settings)
    monkeypatch.setitem(renamed.KEYS, "decoding.beam_width", "decoding.num_beams")
    monkeypatch.setitem(renamed.TENSORS, "decoder.words.", "decoder.embedding.")
    photo = next((tiny_scenes / "images").iterdir())
    assert Captioner.from_pretrained(folder).caption(photo) == Captioner.from_pretrained(tiny_checkpoint).caption(photo)


@pytest.mark.parametrize("old", [key for key in renamed.KEYS if key.startswith(("model.", "objective."))])
def test_a_renamed_key_of_a_model_or_an_objective_is_a_field_of_one(old):
    section, *path = renamed.KEYS[old].split(".")
    registry = {"model": MODELS, "objective": OBJECTIVES}[section]

    def has(config, keys):
        field = config.model_fields.get(keys[0])
        return field is not None and (len(keys) == 1 or has(field.annotation, keys[1:]))

    assert any(has(config, path) for config, _ in registry.values())
    assert not any(has(config, old.split(".")[1:]) for config, _ in registry.values())
