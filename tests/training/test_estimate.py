"""`train --estimate`: the numbers of a run, from a few of its steps."""

import json

import pytest
import yaml

from showtell.training import estimate as estimate_module
from showtell.training import train
from tests.cli.test_caption import run as run_command


def test_an_estimate_counts_what_a_run_does_and_leaves_nothing(tiny_recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate_module, "STEPS", 3)
    tiny_recipe["training"] |= {"epochs": 2, "batch_size": 8, "gradient_accumulation": 2}
    tiny_recipe["encoder"]["trained"] = False
    tiny_recipe["data"]["features"] = "store"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_recipe))
    code, out, _ = run_command(capsys, "train", "tiny.yaml", "--estimate", "--json")
    assert code == 0 and [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
    estimate = json.loads(out)
    steps = 2 * 4  # 50 images, 16 in a step
    assert estimate["steps"] == steps
    assert estimate["training"] == pytest.approx(steps * estimate["seconds_per_step"])
    assert estimate["captions_per_second"] == pytest.approx(48 / estimate["seconds_per_step"])
    parts = estimate["extraction"], estimate["training"], estimate["validation"]
    assert estimate["total"] == pytest.approx(sum(parts)) and parts[0] > 0
    run = train("tiny.yaml", quiet=True)
    size = sum(
        path.stat().st_size for name in ("best", "last") for path in (run.folder / name).rglob("*") if path.is_file()
    )
    assert 0.8 * size < estimate["checkpoints"] < 1.5 * size + 200_000
    code, out, _ = run_command(capsys, "train", "tiny.yaml", "--estimate")  # the store has everything now
    assert code == 0 and "features    0 s" in out and "for 8 steps" in out
