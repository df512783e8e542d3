"""Sweeps: which trials, that all are checked before one starts, the table, and that a kill changes nothing."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import signal
import subprocess
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
from showtell.training.sweep import Row, SweepResult, grid, parse_space, sweep, values_of
from tests.training.test_loop import fingerprints, stop_at


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    tiny_recipe["training"]["epochs"] = 2
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe))
    return file


def test_a_search_space_is_read_and_its_grid_is_every_combination():
    axes = ["encoder.widths=[8, 16],[8]", "data.limit=null,5", "a.b=log(1e-4..1e-2)", "a.c=uniform(-1 .. 5)"]
    space = parse_space(axes)
    assert space == {
        "encoder.widths": CategoricalDistribution(["[8, 16]", "[8]"]),
        "data.limit": CategoricalDistribution(["null", "5"]),
        "a.b": FloatDistribution(1e-4, 1e-2, log=True),
        "a.c": IntDistribution(-1, 5),
    }
    lists = parse_space(axes[:2])
    assert [tuple(values_of(lists, trial).values()) for trial in grid(lists)] == [
        ([8, 16], None), ([8, 16], 5), ([8], None), ([8], 5),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"a\.b is a range, from which --trials N takes values; without it, list val"):
        grid(space)


REFUSED: list[tuple[list[str], dict[str, Any], type[Exception], str]] = [
    ([], {}, UsageError, "A sweep needs a key with values, such as"),
    (["model.hidden_size"], {}, UsageError, "is no key with values; write section.key=v1,v2"),
    (["hidden_size=1"], {}, UsageError, "is no key with values; write section.key=v1,v2"),
    (["model.hidden_size=[1"], {}, UsageError, 'The values in "model.hidden_size=[1" are not valid YAML ('),
    (["a.b=log(1)"], {}, UsageError, 'The range in "a.b=log(1)" has to go from a number to a greater one'),
    (["a.b=log(0..1)"], {}, UsageError, "with log from a number above 0"),
    (["a.b=uniform(2..1)"], {}, UsageError, "has to go from a number to a greater one"),
    (["a.b=uniform(0..inf)"], {}, UsageError, "has to go from a number to a greater one"),
    (["model.dropout=0", "model.dropout=0.1"], {}, UsageError, "model.dropout is given twice; list all its values"),
    (["model.dropout=0"], {"metric": "cidr"}, UsageError, 'cannot order trials by "cidr"; did you mean "cider"?'),
    (["model.dropout=0"], {"metric": "meteor"}, UsageError, "only where it selects; add training.selection_metric=met"),
    (["model.dropout=0"], {"sampler": "tp"}, UsageError, 'There is no sampler "tp"; did you mean "tpe"?'),
    (["model.dropout=0"], {"sampler": "tpe"}, UsageError, "--sampler tpe needs a number of trials: add --trials"),
    (["model.dropout=0"], {"sampler": "grid", "trials": 2}, UsageError, "grid trains every combination: leave out"),
    (["model.dropout=0,1"], {"trials": 3}, UsageError, "--trials 3 is more than the 2 combinations"),
    (["data.validation_split=val,null"], {}, RecipeError, "data.validation_split is null, so trials would have no"),
    (["model.hidden_size=16,0", "training.epoch=1"], {}, RecipeError, "has 2 problems in this sweep, so no trial was"),
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


def test_trials_are_runs_and_one_table_orders_them(tiny_recipe, recipe_file, tmp_path, capsys):
    out = tmp_path / "out"
    tiny_recipe["training"] |= {"epochs": 1, "clip_norm": None, "optimizer": {"name": "sgd"}}
    recipe_file.write_text(yaml.safe_dump(tiny_recipe))
    axes = ["training.learning_rate=0.04,1e30,0.004", "encoder.weights=random"]
    result = sweep(recipe_file, axes, out, quiet=True)
    assert result.to_json() == json.loads((out / "sweep.json").read_text())
    *good, bad = result.rows
    assert [row.status for row in result.rows] == ["finished", "finished", "failed"]
    assert bad.values == {"training.learning_rate": "1e30", "encoder.weights": "random"}
    assert re.match(r"The loss is \S+ at step \d+, over the images .*: training has diverged; lower ", bad.error)
    assert good[0].scores["cider"] >= good[1].scores["cider"]
    for row in good:
        recipe = yaml.safe_load((out / row.run / "recipe.yaml").read_text())
        assert recipe["training"]["learning_rate"] == float(row.values["training.learning_rate"])
        log = [json.loads(line) for line in (out / row.run / "log.jsonl").read_text().splitlines()]
        assert row.scores == next(line["validation"] for line in log if "validation" in line)
    # Asked again, nothing is trained; with --retry, what failed is.
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    assert sweep(recipe_file, axes, out, quiet=True) == result
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    capsys.readouterr()
    sweep(recipe_file, axes, out, retry=True)
    assert "failed: The loss is " in (output := capsys.readouterr().err)
    assert output.count("weights to train") == 1
    # With another metric or more values, runs that are finished only tell their scores again.
    by_loss = sweep(recipe_file, [axes[0] + ",0.02", axes[1]], out, metric="loss", quiet=True)
    losses = [row.scores["loss"] for row in by_loss.rows[:3]]
    assert losses == sorted(losses) and [row.status for row in by_loss.rows] == ["finished"] * 3 + ["failed"]
    assert {row.run: row.scores for row in by_loss.rows}[good[0].run] == good[0].scores


def test_a_value_that_fails_when_built_is_a_row_and_a_missing_dataset_ends_the_sweep(recipe_file, tmp_path):
    call = ["sweep", str(recipe_file), "encoder.weights=none.safetensors", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(make_app(call), call)
    assert shown.exit_code == 2
    assert shown.stdout.startswith("encoder.weights   cider  epoch  run\nnone.safetensors  -      -      failed: ")
    content = json.loads(CliRunner().invoke(make_app(call), [*call, "--json"]).stdout)
    assert content["sweep"] == str(tmp_path / "out") and content["metric"] == "cider"
    assert content["trials"][0]["status"] == "failed"
    with pytest.raises(DataError):
        sweep(recipe_file, ["data.path=nowhere", "training.epochs=1"], tmp_path / "other", quiet=True)


def test_long_and_odd_values_have_folders_of_their_own(recipe_file, tmp_path):
    axes = ["encoder.weights=" + ",".join(f"{'long/' * 40}{end}" for end in "ab"), "decoding.bad_words=[a/b],[a;b]"]
    result = sweep(recipe_file, axes, tmp_path / "out", quiet=True)
    assert len(runs := {row.run for row in result.rows}) == 4
    assert all(len(run) <= 110 and "/" not in run and ";" not in run for run in runs)


def files_of_trials(out: Path) -> dict[str, str]:
    """All files but Optuna's, which hold times, and locks."""
    return {name: hash for name, hash in fingerprints(out).items() if "/" in name or name == "sweep.json"}


def command(recipe: Path, axes: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "showtell", "sweep", str(recipe), *axes, "--out", str(out)]


@pytest.mark.slow
def test_stopped_and_killed_it_resumes_and_ends_with_the_same_bits(recipe_file, tmp_path):
    """Ctrl-C in the first trial, SIGKILL in the second, then to the end, against an undisturbed sweep."""
    axes, broken = ["model.dropout=0.1,0.3"], tmp_path / "broken"
    whole = sweep(recipe_file, axes, tmp_path / "whole", quiet=True)
    first, second = broken / "dropout=0.1", broken / "dropout=0.3"
    assert stop_at(command(recipe_file, axes, broken), first / "log.jsonl", 3, signal.SIGINT) == 130
    assert (first / "last").exists() and not second.exists()
    assert stop_at(command(recipe_file, axes, broken), second / "log.jsonl", 9, signal.SIGKILL) == -signal.SIGKILL
    assert sweep(recipe_file, axes, broken, quiet=True).rows == whole.rows
    assert files_of_trials(broken) == files_of_trials(whole.folder)


@pytest.mark.slow
def test_two_processes_share_one_sweep(recipe_file, tmp_path):
    axes, out = ["model.dropout=0.1,0.2,0.3,0.4", "training.epochs=1"], tmp_path / "out"
    started = [
        subprocess.Popen(command(recipe_file, axes, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=200)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    trained = re.findall(r"^trial \d, 4 in all: (.*)$", "".join(errors), re.MULTILINE)
    assert len(trained) == len(set(trained)) == 4 and all("trial " in error for error in errors)
    alone = sweep(recipe_file, axes, tmp_path / "alone", quiet=True)
    assert files_of_trials(out) == files_of_trials(alone.folder)


# ---- samplers, without training

RATE, DROPOUT = "training.learning_rate=log(1e-5..1e-1)", "model.dropout=0.1,0.2,0.3"


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
        folder.mkdir()
        line = {"step": 1, "epoch": 1, "validation": {"cider": score, "loss": 1 - score}}
        (folder / "log.jsonl").write_text(json.dumps(line) + "\n")
        return TrainingResult(folder, 1, score, 1)

    monkeypatch.setattr("showtell.training.sweep.train", train)
    return trained


def test_draws_are_within_their_range_and_a_larger_number_begins_with_the_same(recipe_file, tmp_path, no_training):
    few = sweep(recipe_file, [RATE, DROPOUT], tmp_path / "few", trials=6, quiet=True)
    rates = [math.log10(trial["rate"]) for trial in no_training]
    assert -5 <= min(rates) < -4 and -2 < max(rates) <= -1
    assert len({trial["dropout"] for trial in no_training}) > 1
    scores = [row.scores["cider"] for row in few.rows if row.scores]
    assert scores == sorted(scores, reverse=True)
    drawn = list(no_training)
    no_training.clear()
    sweep(recipe_file, [RATE, DROPOUT], tmp_path / "many", trials=8, quiet=True)
    assert no_training[:6] == drawn


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=pytest.mark.slow)])
def test_what_is_chosen_is_the_same_in_one_call_or_several(sampler, recipe_file, tmp_path, no_training):
    whole = sweep(recipe_file, [RATE], tmp_path / "whole", sampler=sampler, trials=12, seed=3, quiet=True)
    at_once = list(no_training)
    no_training.clear()
    for trials in (4, 11, 12, 12):
        parts = sweep(recipe_file, [RATE], tmp_path / "parts", sampler=sampler, trials=trials, seed=3, quiet=True)
    assert no_training == at_once
    assert parts.rows == whole.rows


def test_a_trial_whose_process_died_is_taken_over(recipe_file, tmp_path, no_training, monkeypatch):
    real = sys.modules["showtell.training.sweep"].train
    monkeypatch.setattr("showtell.training.sweep.train", lambda *a, **b: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        sweep(recipe_file, [RATE], tmp_path / "out", sampler="tpe", trials=3, quiet=True)
    monkeypatch.setattr("showtell.training.sweep.train", real)
    resumed = sweep(recipe_file, [RATE], tmp_path / "out", sampler="tpe", trials=3, quiet=True)
    assert resumed.rows == sweep(recipe_file, [RATE], tmp_path / "whole", sampler="tpe", trials=3, quiet=True).rows


def test_without_optuna_the_message_has_the_install_line(monkeypatch):
    monkeypatch.delitem(sys.modules, "showtell.training.sweep")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError, match=r"A sweep needs Optuna, .* pip install \"showtell\[sweep\]\"\."):
        importlib.import_module("showtell.training.sweep")


def test_the_table_has_a_line_for_each_trial():
    rows = (
        Row("a", {"model.cell": "gru", "m.x": 2}, "finished", 3, {"loss": 1.5, "bleu_4": 0.25, "cider": 0.8}),
        Row("b", {"model.cell": "lstm", "m.x": None}, "failed", error="It diverged."),
        Row("c", {"model.cell": "lstm", "m.x": 3}),
    )
    assert table(SweepResult(Path("s"), "cider", rows)).splitlines() == [
        "model.cell  m.x   cider   loss    bleu_4  epoch  run",
        "gru         2     0.8000  1.5000  0.2500  3      a",
        "lstm        null  -       -       -       -      failed: It diverged.",
        "lstm        3     -       -       -       -      waiting",
    ]
