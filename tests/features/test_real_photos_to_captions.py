"""Real photos through the real path: weights in a file, features in a store, training from it, a caption of a photo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from showtell.features import build_encoder, encoder_config

RECIPE = {
    "vocabulary": {"min_count": 2},
    "model": {"name": "sat", "embedding_size": 32, "hidden_size": 64, "attention_size": 32},
    "objective": {"name": "cross_entropy"},
    "training": {"epochs": 2, "batch_size": 10, "learning_rate": 0.002, "trackers": []},
    "decoding": {"num_beams": 1, "max_length": 12},
}


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("settings", "cells", "size"),
    [
        ({"name": "resnet18", "grid": 14}, 196, 512),
        ({"name": "faster_rcnn", "detector": "fasterrcnn_mobilenet_v3_large_320_fpn"}, None, 1024),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_from_weights_in_a_file_to_the_caption_of_a_photo(
    settings, cells, size, shared_data: Path, tmp_path: Path, all_cores: dict[str, str]
) -> None:
    def showtell(*arguments: object) -> str:
        command = [sys.executable, "-m", "showtell", *map(str, arguments)]
        done = subprocess.run(command, env=all_cores, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    data, store, weights = shared_data / "coco-mini", tmp_path / "store", tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    made = build_encoder(encoder_config({**settings, "weights": "random", "trained": False}))
    inner = getattr(made, "backbone", None) or made.detector
    save_file({name: tensor.contiguous() for name, tensor in inner.state_dict().items()}, weights)
    options = [f"{key}={value}" for key, value in settings.items() if key != "name"]
    common = ["--encoder", settings["name"], "--weights", weights, "--out", store, "--json"]
    facts = json.loads(showtell("features", data, *options, *common))
    assert (facts["images"], facts["feature_size"], facts["unreadable"]) == (145, size, [])
    if cells is not None:
        assert facts["bytes"] == pytest.approx(145 * cells * size * 2, rel=0.03)  # LMDB fills up pages of 4 kB
    encoder = {**settings, "weights": str(weights), "trained": False}
    recipe = {**RECIPE, "data": {"path": str(data), "features": str(store)}, "encoder": encoder}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    showtell("train", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    weights.unlink()  # the checkpoint needs nothing else
    photo = next((data / "images").iterdir())
    assert showtell("caption", tmp_path / "run" / "last", photo).strip()
    scores = json.loads(
        showtell("evaluate", tmp_path / "run" / "last", data, "--features", store, "--metrics", "bleu", "--json")
    )
    assert scores["scores"]["bleu_1"] is not None
