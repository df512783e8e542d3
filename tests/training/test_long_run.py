"""Ten thousand steps: what a process holds in memory does not grow with them."""

from __future__ import annotations

import copy
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from showtell.training import train
from tests.training import process_group

STEPS, EPOCHS = 10_000, 200  # of 50 images, one in a step


def train_small(recipe: dict[str, Any], folder: Path) -> None:
    train(recipe, folder, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cross_entropy", "self_critical"])
def test_memory_is_flat_over_ten_thousand_steps(objective, tiny_recipe, tmp_path):
    """Log, TensorBoard, checkpoints and validations included; features from a store. Run with -s for the numbers."""
    recipe = copy.deepcopy(tiny_recipe)
    recipe["data"] |= {"captions_per_image": 1, "features": str(tmp_path / "features")}
    recipe["encoder"] = {"name": "small_cnn", "image_size": 48, "widths": [8, 8, 8], "trained": False}
    recipe["model"] |= {"embedding_size": 8, "hidden_size": 8, "attention_size": 8}
    recipe["objective"] = {"name": "cross_entropy"}
    recipe["decoding"] = {"max_length": 5}
    recipe["training"] |= {"batch_size": 1, "epochs": 1, "learning_rate": 0.001, "trackers": ["tensorboard"]}
    if objective == "self_critical":
        train(recipe, tmp_path / "start", quiet=True)
        recipe["objective"] = {"name": "self_critical", "samples": 2}
        recipe["training"] |= {"start_from": str(tmp_path / "start" / "best"), "reward_watchdog": {"min_cider": 0}}
        recipe["training"]["reward_watchdog"] |= {"patience": 9999, "collapse_ratio": 1e-9}
    recipe["training"] |= {"epochs": EPOCHS, "validate_every": 20, "sample_captions": 0}
    (process,) = process_group.start(1, tmp_path / "said", train_small, recipe, tmp_path / "run")
    log, megabytes = tmp_path / "run" / "log.jsonl", {}  # by thousands of steps
    while process.is_alive():
        if log.exists():
            thousands = log.read_bytes().count(b'"loss"') // 1000
            if thousands not in megabytes:
                megabytes[thousands] = psutil.Process(process.pid).memory_info().rss / 2**20
                print(f"{objective}: {megabytes[thousands]:.1f} MB after {1000 * thousands} steps", flush=True)
        time.sleep(0.2)
    assert process_group.end([process]) == [0], (tmp_path / "said").read_text()[-3000:]
    assert set(range(1, 10)) <= set(megabytes)
    early, late = (statistics.median(megabytes[step] for step in steps) for steps in ((2, 3, 4), (7, 8, 9)))
    assert late - early < 5  # a kilobyte kept of each step would be 5
