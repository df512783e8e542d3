"""Sweeps: which trials, that all are checked before one starts, the table, and that a kill changes nothing."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from typer.testing import CliRunner

from showtell.cli.app import make_app
from showtell.cli.sweep import table
from showtell.errors import DataError, MissingDependencyError, RecipeError, TrainingError, UsageError
from showtell.training.loop import TrainingResult
from showtell.training.recipe import Recipe
from showtell.training.sweep import Row, SweepResult, parse_space, sweep
from tests.training.test_loop import fingerprints, log_of, stop_at

RATE, DROPOUT = "training.learning_rate=log(1e-5..1e-1)", "model.dropout=0.1,0.2,0.3"


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    tiny_recipe["training"]["epochs"] = 2
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe))
    return file


def test_a_search_space_is_read():
    axes = ["encoder.widths=[8, 16],[8]", "data.limit=null,5", "a.b=log(1e-4..1e-2)", "a.c=uniform(1 .. 5)"]
    assert parse_space(axes) == {
        "encoder.widths": CategoricalDistribution(["[8, 16]", "[8]"]),
        "data.limit": CategoricalDistribution(["null", "5"]),
        "a.b": FloatDistribution(1e-4, 1e-2, log=True),
        "a.c": IntDistribution(1, 5),
    }


REFUSED: list[tuple[list[str], dict[str, Any], type[Exception], str]] = [
    ([], {}, UsageError, "A sweep needs a key with values, such as"),
    (["model.hidden_size"], {}, UsageError, '"model.hidden_size" cannot be read (no key with values); write section.'),
    (["hidden_size=1"], {}, UsageError, '"hidden_size=1" cannot be read (no key with values)'),
    (["model.hidden_size=[1"], {}, UsageError, '"model.hidden_size=[1" cannot be read ('),
    (["model.dropout=log(0..1)"], {}, UsageError, "or a range from a number to a greater one"),
    (["model.dropout=uniform(2..1)"], {}, UsageError, "or a range from a number to a greater one"),
    ([RATE], {}, UsageError, "training.learning_rate is a range, from which --trials N takes values; without it, list"),
    (["training.learning_rate=uniform(1..inf)"], {"trials": 2}, RecipeError, "should be a finite number, got inf"),
    (["model.dropout=0", "model.dropout=0.1"], {}, UsageError, "model.dropout is given twice; list all its values"),
    (["model.dropout=0"], {"sampler": "tp", "trials": 1}, UsageError, 'There is no sampler "tp"; did you mean "tpe"?'),
    (["data.validation_split=val,null"], {}, RecipeError, "data.validation_split is null, so trials would have no"),
    (["model.hidden_size=16,0"], {}, RecipeError, "No trial was started: with hidden_size=0, "),
]


def test_a_sweep_that_could_not_end_well_is_refused(recipe_file, tmp_path):
    for axes, options, error, message in REFUSED:
        with pytest.raises(error) as caught:
            sweep(recipe_file, axes, tmp_path / "out", **options)
        assert message in str(caught.value), axes
        assert not (tmp_path / "out").exists()
    (tmp_path / "run").mkdir()
    shutil.copy(recipe_file, tmp_path / "run" / "recipe.yaml")
    with pytest.raises(UsageError, match="holds a run; choose another --out for the sweep"):
        sweep(recipe_file, ["model.dropout=0"], tmp_path / "run")


# ---- trials


def test_trials_are_runs_and_one_table_orders_them(tiny_recipe, recipe_file, tmp_path):
    out = tmp_path / "out"
    tiny_recipe["training"] |= {"epochs": 1, "clip_norm": None, "optimizer": {"name": "sgd"}}
    recipe_file.write_text(yaml.safe_dump(tiny_recipe))
    axes = ["training.learning_rate=0.04,1e30,0.004", "encoder.weights=random"]
    result = sweep(recipe_file, axes, out, quiet=True)
    assert result.to_json() == json.loads((out / "sweep.json").read_text())
    *good, bad = result.rows
    assert bad.values == {"training.learning_rate": "1e30", "encoder.weights": "random"} and bad.scores is None
    assert re.match(r"The loss is \S+ at step \d+, over the images .*: training has diverged; lower ", bad.error)
    assert good[0].scores["cider"] >= good[1].scores["cider"]
    for row in good:
        recipe = yaml.safe_load((out / row.run / "recipe.yaml").read_text())
        assert recipe["training"]["learning_rate"] == float(row.values["training.learning_rate"])
        assert row.scores == next(line["validation"] for line in log_of(out / row.run) if "validation" in line)
    # Asked again, nothing is trained; with more values only what is new.
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    assert sweep(recipe_file, axes, out, quiet=True) == result
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    more = sweep(recipe_file, [axes[0] + ",0.02", axes[1]], out, quiet=True)
    assert len(more.rows) == 4 and more.rows[-1].error
    assert {row.run: row.scores for row in more.rows}[good[0].run] == good[0].scores


def test_a_value_that_fails_when_built_is_a_row_and_a_missing_dataset_ends_the_sweep(recipe_file, tmp_path):
    call = ["sweep", str(recipe_file), "encoder.weights=none.safetensors", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(make_app(call), call)
    assert shown.exit_code == 2
    assert shown.stdout.startswith("encoder.weights   cider  epoch  run\nnone.safetensors  -      -      failed: ")
    content = json.loads(CliRunner().invoke(make_app(call), [*call, "--json"]).stdout)
    assert (content["sweep"], content["metric"]) == (str(tmp_path / "out"), "cider")
    assert "none.safetensors" in content["trials"][0]["error"]
    with pytest.raises(DataError):
        sweep(recipe_file, ["data.path=nowhere", "training.epochs=1"], tmp_path / "other", quiet=True)


@pytest.mark.slow
def test_stopped_and_killed_it_resumes_and_ends_with_the_same_bits(recipe_file, tmp_path):
    """Ctrl-C in the first trial, SIGKILL in the second, then to the end, against an undisturbed sweep."""
    axes, broken = ["model.dropout=0.1,0.3"], tmp_path / "broken"
    command = [sys.executable, "-m", "showtell", "sweep", str(recipe_file), *axes, "--out", str(broken)]
    whole = sweep(recipe_file, axes, tmp_path / "whole", quiet=True)
    first, second = broken / "dropout=0.1", broken / "dropout=0.3"
    assert stop_at(command, first / "log.jsonl", 3, signal.SIGINT) == 130
    assert (first / "last").exists() and not second.exists()
    assert stop_at(command, second / "log.jsonl", 9, signal.SIGKILL) == -signal.SIGKILL
    assert sweep(recipe_file, axes, broken, quiet=True).rows == whole.rows
    of_trials = [
        {name: hash for name, hash in fingerprints(out).items() if "/" in name or name == "sweep.json"}
        for out in (broken, whole.folder)
    ]  # Optuna's own hold times
    assert of_trials[0] == of_trials[1]


# ---- samplers, without training


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Trials without training: the score is best at a learning rate of 0.001 with dropout 0.2. Gives their values."""
    trained = []

    def train(recipe: Recipe, folder: Path, *, resume: bool, quiet: bool) -> TrainingResult:
        rate, dropout = recipe.training.learning_rate, recipe.model.dropout  # type: ignore[attr-defined]
        trained.append({"rate": rate, "dropout": dropout})
        if rate > 0.05:
            raise TrainingError("It diverged.")
        score = 1 - abs(math.log10(rate) + 3) / 4 - abs(dropout - 0.2)
        folder.mkdir(exist_ok=True)
        line = {"step": 1, "epoch": 1, "validation": {"cider": score, "loss": 1 - score}}
        (folder / "log.jsonl").write_text(json.dumps(line) + "\n")
        return TrainingResult(folder, 1, score, 1)

    monkeypatch.setattr("showtell.training.sweep.train", train)
    return trained


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_is_chosen_is_the_same_in_one_call_or_several(sampler, recipe_file, tmp_path, no_training, monkeypatch):
    whole = sweep(recipe_file, [RATE, DROPOUT], tmp_path / "whole", sampler=sampler, trials=12, quiet=True)
    rates = [math.log10(trial["rate"]) for trial in no_training]
    assert -5 <= min(rates) < -3 < max(rates) <= -1 and len({trial["dropout"] for trial in no_training}) > 1
    scores = [row.scores["cider"] for row in whole.rows if row.scores]
    assert scores == sorted(scores, reverse=True)
    at_once = list(no_training)
    no_training.clear()
    with monkeypatch.context() as patch:  # a process that dies in its first trial
        patch.setattr("showtell.training.sweep.train", lambda *a, **b: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sweep(recipe_file, [RATE, DROPOUT], tmp_path / "parts", sampler=sampler, trials=4, quiet=True)
    for trials in (4, 11, 12, 12):
        parts = sweep(recipe_file, [RATE, DROPOUT], tmp_path / "parts", sampler=sampler, trials=trials, quiet=True)
    assert no_training == at_once
    assert parts.rows == whole.rows


def test_long_and_odd_values_have_folders_of_their_own(recipe_file, tmp_path, no_training):
    axes = ["encoder.weights=" + ",".join(f"{'long/' * 40}{end}" for end in "ab"), "decoding.bad_words=[a/b],[a;b]"]
    result = sweep(recipe_file, axes, tmp_path / "out", quiet=True)
    assert len(runs := {row.run for row in result.rows}) == len(no_training) == 4
    assert all(len(run) <= 110 and "/" not in run and ";" not in run for run in runs)


def test_without_optuna_the_message_has_the_install_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "showtell.training.sweep")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=r"A sweep needs Optuna, .* pip install \"showtell\[sweep\]\"\."):
        importlib.import_module("showtell.training.sweep")


def test_the_table_has_a_line_for_each_trial():
    rows = (
        Row("a", {"model.cell": "gru", "m.x": 2}, 3, {"loss": 1.5, "bleu_4": 0.25, "cider": 0.8}),
        Row("b", {"model.cell": "lstm", "m.x": None}, error="It diverged."),
        Row("c", {"model.cell": "lstm", "m.x": 3}),
    )
    assert table(SweepResult(Path("s"), "cider", rows)).splitlines() == [
        "model.cell  m.x   cider   loss    bleu_4  epoch  run",
        "gru         2     0.8000  1.5000  0.2500  3      a",
        "lstm        null  -       -       -       -      failed: It diverged.",
        "lstm        3     -       -       -       -      waiting",
    ]
