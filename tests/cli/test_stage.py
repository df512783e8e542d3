"""`--stage` as a person gives it: whose caption of a model from coarse to fine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from showtell.captioners import Captioner
from showtell.training import train
from tests.cli.test_caption import run


@pytest.fixture(scope="module")
def photo(tiny_scenes: Path) -> Path:
    return min((tiny_scenes / "images").iterdir())


def test_every_stage_of_a_trained_model_says_a_caption_of_its_own(
    capsys, tiny_recipe: dict[str, Any], tiny_scenes, photo, tmp_path
):
    model = {"name": "stack", "embedding_size": 8, "hidden_size": 8, "attention_size": 8}
    training = {**tiny_recipe["training"], "epochs": 1}
    train({**tiny_recipe, "model": model, "training": training}, tmp_path / "run", quiet=True)
    checkpoint, probabilities = tmp_path / "run" / "last", []
    for stage in (0, 1, 2):
        status, out, _ = run(capsys, "caption", checkpoint, photo, "--stage", stage, "--format", "json")
        assert status == 0
        probabilities.append(json.loads(out)[0]["captions"][0]["logprob"])
        assert probabilities[-1] == pytest.approx(
            Captioner.from_pretrained(checkpoint).caption(photo, stage=stage)[0].logprob
        )
    assert len(set(probabilities)) == 3
    _, out, _ = run(capsys, "caption", checkpoint, photo, "--format", "json")
    assert json.loads(out)[0]["captions"][0]["logprob"] == probabilities[2]
    status, _, err = run(capsys, "evaluate", checkpoint, tiny_scenes, "--split", "val", "--stage", 3)
    assert status == 2
    assert "There is no stage 3: the model has stages 0 to 2." in err
