"""Sweeps: which trials, that all are checked before one starts, the table, and that a kill changes nothing."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from typer.testing import CliRunner

from showtell.cli.app import app
from showtell.cli.sweep import table
from showtell.errors import DataError, MissingDependencyError, RecipeError, TrainingError, UsageError
from showtell.training.loop import TrainingResult
from showtell.training.recipe import Recipe
from showtell.training.sweep import Row, SweepResult, sweep
from showtell.training.sweep_space import grid, parse_axis, parse_space, random_trials, values_of
from tests.training.test_loop import fingerprints, stop_at


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    tiny_recipe["training"]["epochs"] = 2
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe))
    return file


# ---- which trials


def test_an_axis_is_read():
    def listed(*texts: str) -> CategoricalDistribution:
        return CategoricalDistribution(texts)

    assert parse_axis("model.hidden_size=16,24") == ("model.hidden_size", listed("16", "24"))
    assert parse_axis("encoder.widths=[8, 16],[8]") == ("encoder.widths", listed("[8, 16]", "[8]"))
    assert parse_axis("data.limit=null,5") == ("data.limit", listed("null", "5"))
    assert parse_axis("a.b=log(1e-4..1e-2)") == ("a.b", FloatDistribution(1e-4, 1e-2, log=True))
    assert parse_axis("a.b=uniform(-1 .. 5)") == ("a.b", IntDistribution(-1, 5))
    assert parse_axis("a.b=uniform(0.0..1)") == ("a.b", FloatDistribution(0, 1))
    space = parse_space(["encoder.widths=[8, 16],[8]", "data.limit=null,5"])
    assert values_of(space, grid(space)[1]) == {"encoder.widths": [8, 16], "data.limit": 5}


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("model.hidden_size", "is no key with values; write section.key=v1,v2"),
        ("hidden_size=1", "is no key with values; write section.key=v1,v2"),
        ("model.hidden_size= ", "is no key with values; write section.key=v1,v2"),
        ("model.hidden_size=[1", 'The values in "model.hidden_size=[1" are not valid YAML; put each in quotes.'),
        ("a.b=log(1)", r'The range in "a.b=log(1)" needs two numbers: a.b=log(1e-4..1e-2).'),
        ("a.b=log(1..x)", r'The range in "a.b=log(1..x)" needs two numbers: a.b=log(1e-4..1e-2).'),
        ("a.b=log(0..1)", "has to go from a number above 0 to a greater one."),
        ("a.b=uniform(2..1)", "has to go from a number to a greater one."),
        ("a.b=uniform(0..inf)", "has to go from a number to a greater one."),
    ],
)
def test_what_is_no_axis_is_refused(axis, message):
    with pytest.raises(UsageError) as caught:
        parse_axis(axis)
    assert message in str(caught.value)


def test_a_grid_is_every_combination():
    axes = ["a.x=1,2", "a.y=p,q,r"]
    space = parse_space(axes)
    assert [tuple(values_of(space, trial).values()) for trial in grid(space)] == [
        (1, "p"), (1, "q"), (1, "r"), (2, "p"), (2, "q"), (2, "r"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"a\.z is a range, from which --trials N takes values; without it, list val"):
        grid(parse_space([*axes, "a.z=log(1..2)"]))


def drawn(axes: list[str], trials: int, seed: int) -> list[dict[str, Any]]:
    space = parse_space(axes)
    return [values_of(space, parameters) for parameters in random_trials(space, trials, seed)]


def test_draws_are_within_their_range_and_spread_over_it():
    draws = drawn(["a.log=log(1e-5..1e-1)", "a.uniform=uniform(0.2..0.6)", "a.whole=log(8..512)"], 600, seed=0)
    logs, uniforms, wholes = ([draw[f"a.{name}"] for draw in draws] for name in ("log", "uniform", "whole"))
    assert min(logs) >= 1e-5 and max(logs) <= 1e-1
    assert statistics.mean(map(math.log10, logs)) == pytest.approx(-3, abs=0.15)  # 4 / sqrt(12 * 600) is 0.047
    assert statistics.pstdev(map(math.log10, logs)) == pytest.approx(4 / math.sqrt(12), abs=0.1)
    assert statistics.mean(uniforms) == pytest.approx(0.4, abs=0.015)
    assert all(type(value) is int and 8 <= value <= 512 for value in wholes)
    assert statistics.median(wholes) == pytest.approx(64, rel=0.5)  # the middle of 2**3 .. 2**9
    assert {len(f"{value:e}".split("e")[0].rstrip("0")) <= 4 for value in logs} == {True}  # three digits


def test_more_draws_begin_with_the_same_ones_and_none_comes_twice():
    axes = ["a.x=log(1e-4..1e-2)", "a.y=1,2,3"]
    few, many = drawn(axes, 4, seed=3), drawn(axes, 9, seed=3)
    assert many[:4] == few
    assert drawn(axes, 4, seed=4) != few
    # another axis behind them does not change what is drawn for these
    wider = drawn([*axes, "a.z=0,1"], 4, seed=3)
    assert [{key: values[key] for key in ("a.x", "a.y")} for values in wider] == few
    finite = ["a.x=1,2,3", "a.y=1,2"]
    trials = drawn(finite, 6, seed=0)
    assert sorted(tuple(values.values()) for values in trials) == [(x, y) for x in (1, 2, 3) for y in (1, 2)]
    with pytest.raises(UsageError, match="--trials 7 is more than the 6 combinations; leave it out to train them all"):
        drawn(finite, 7, seed=0)


# ---- what is refused before a trial starts


def test_every_trial_is_checked_before_one_starts(recipe_file, tmp_path):
    with pytest.raises(RecipeError) as caught:
        sweep(recipe_file, ["model.hidden_size=16,0", "training.epoch=1", "model.dropout=0.1,1.5"], tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{recipe_file} has 3 problems in this sweep, so no trial was started:"
    assert sorted(line.split(":")[0].strip() for line in lines[1:]) == [
        "model.dropout", "model.hidden_size", "training.epoch",
    ]  # fmt: skip
    assert 'no such key; did you mean "epochs"?' in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("axes", "options", "error", "message"),
    [
        ([], {}, UsageError, "A sweep needs a key with values, such as"),
        (["model.dropout=0", "model.dropout=0.1"], {}, UsageError, "model.dropout is given twice; list all its values"),
        (["model.dropout=0"], {"metric": "cidr"}, UsageError, 'cannot order trials by "cidr"; did you mean "cider"?'),
        (
            ["model.dropout=0"],
            {"metric": "meteor"},
            UsageError,
            "only where it selects; add training.selection_metric=meteor",
        ),
        (["model.dropout=0"], {"sampler": "tp"}, UsageError, 'There is no sampler "tp"; did you mean "tpe"?'),
        (["model.dropout=0"], {"sampler": "tpe"}, UsageError, "--sampler tpe needs a number of trials: add --trials"),
        (["model.dropout=0"], {"sampler": "grid", "trials": 2}, UsageError, "grid trains every combination: leave out"),
        (["data.validation_split=val,null"], {}, RecipeError, "data.validation_split is null, so trials would have no"),
        (['training.mixed_precision="no",bf16'], {}, RecipeError, "has to be the same in all trials of a sweep"),
    ],
)
def test_a_sweep_that_could_not_end_well_is_refused(recipe_file, tmp_path, axes, options, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        sweep(recipe_file, axes, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_run_folder_is_no_place_for_a_sweep(recipe_file, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(recipe_file, tmp_path / "run" / "recipe.yaml")
    with pytest.raises(UsageError, match="holds a run; choose another --out for the sweep"):
        sweep(recipe_file, ["model.dropout=0"], tmp_path / "run")


# ---- trials


def test_trials_are_runs_and_one_table_orders_them(tiny_recipe, recipe_file, tmp_path, capsys):
    out = tmp_path / "out"
    tiny_recipe["training"] |= {"clip_norm": None, "optimizer": {"name": "sgd"}}
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
        assert yaml.safe_load((out / row.run / "recipe.yaml").read_text())["training"]["learning_rate"] == float(
            row.values["training.learning_rate"]
        )
        log = [json.loads(line) for line in (out / row.run / "log.jsonl").read_text().splitlines()]
        validations = {line["epoch"]: line["validation"] for line in log if "validation" in line}
        assert row.scores == validations[row.epoch]
        assert row.scores["cider"] == max(scores["cider"] for scores in validations.values())
    # Asked again, nothing is trained: neither what finished nor what failed.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.parent != out}
    assert sweep(recipe_file, axes, out, quiet=True) == result
    by_loss = sweep(recipe_file, axes, out, metric="loss", quiet=True)
    losses = [row.scores["loss"] for row in by_loss.rows[:2]]
    assert losses == sorted(losses) and by_loss.rows[2] == bad
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.parent != out}
    # With more values, what is new alone; with --retry, what failed.
    assert capsys.readouterr().err == ""
    sweep(recipe_file, [axes[0] + ",0.02", axes[1]], out)
    assert "trial 4 of 4: learning_rate=0.02,weights=random" in (output := capsys.readouterr().err)
    assert output.count("weights to train") == 1
    sweep(recipe_file, axes, out, retry=True)
    assert "trial 2 failed: The loss is " in (output := capsys.readouterr().err)
    assert output.count("weights to train") == 1
    # A recipe that has changed is another sweep.
    other = yaml.safe_load(recipe_file.read_text())
    other["training"]["seed"] = 7
    recipe_file.write_text(yaml.safe_dump(other))
    with pytest.raises(
        RecipeError, match=r"was of another recipe: training\.seed \(was 0, now 7\); choose another --out"
    ):
        sweep(recipe_file, axes, out, quiet=True)


def test_a_value_that_fails_when_built_is_a_row_and_a_missing_dataset_ends_the_sweep(recipe_file, tmp_path):
    axes = ["encoder.weights=none.safetensors", "training.epochs=1"]
    result = sweep(recipe_file, axes, tmp_path / "out", quiet=True)
    assert [row.status for row in result.rows] == ["failed"]
    assert "none.safetensors" in result.rows[0].error
    with pytest.raises(DataError):
        sweep(recipe_file, ["data.path=nowhere", "training.epochs=1"], tmp_path / "other", quiet=True)
    assert not list((tmp_path / "other").rglob("trial.json"))


def test_values_that_say_the_same_are_one_trial(recipe_file, tmp_path):
    axes = ["training.learning_rate=0.004,4e-3,0.0040", "training.epochs=1", "encoder.weights=none.safetensors"]
    assert len(sweep(recipe_file, axes, tmp_path / "out", quiet=True).rows) == 1


def test_long_and_odd_values_have_folders_of_their_own(recipe_file, tmp_path):
    axes = ["encoder.weights=" + ",".join(f"{'long/' * 40}{end}" for end in "ab"), "decoding.bad_words=[a/b],[a;b]"]
    result = sweep(recipe_file, axes, tmp_path / "out", quiet=True)
    runs = {row.run for row in result.rows}
    assert len(runs) == 4 and all((tmp_path / "out" / run / "trial.json").exists() for run in runs)
    assert all(len(run) <= 110 and "/" not in run and ";" not in run for run in runs)


def test_killed_it_goes_on_and_ends_with_the_same_bits(recipe_file, tmp_path):
    """SIGKILL in the second trial, then to the end, against an undisturbed sweep."""
    axes = ["model.dropout=0.1,0.3"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    sweep(recipe_file, axes, whole, quiet=True)
    second = broken / "dropout=0.3"
    assert stop_at(command(recipe_file, axes, broken), second / "log.jsonl", 9, signal.SIGKILL) == -signal.SIGKILL
    assert (second / "last").exists() and not (second / "trial.json").exists()
    first = (broken / "dropout=0.1" / "trial.json").stat().st_mtime_ns
    assert sweep(recipe_file, axes, broken, quiet=True).rows == sweep(recipe_file, axes, whole, quiet=True).rows
    assert (broken / "dropout=0.1" / "trial.json").stat().st_mtime_ns == first
    assert files_of_trials(broken) == files_of_trials(whole)


def files_of_trials(out: Path) -> dict[str, str]:
    """All files but Optuna's, which hold times, and locks."""
    return {name: hash for name, hash in fingerprints(out).items() if "/" in name or name == "sweep.json"}


def command(recipe: Path, axes: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "showtell", "sweep", str(recipe), *axes, "--out", str(out)]


def test_ctrl_c_ends_the_sweep_and_leaves_its_trial_to_go_on(recipe_file, tmp_path):
    axes, out = ["model.dropout=0.1,0.3"], tmp_path / "out"
    first = out / "dropout=0.1"
    assert stop_at(command(recipe_file, axes, out), first / "log.jsonl", 3, signal.SIGINT) == 130
    assert (first / "last").exists() and not (first / "trial.json").exists()
    assert not (out / "dropout=0.3").exists()


# ---- samplers that learn from trials

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


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_a_sampler_that_learns_comes_nearer_to_the_best_than_chance(sampler, recipe_file, tmp_path, no_training):
    sweep(recipe_file, [RATE, DROPOUT], tmp_path / "random", trials=30, quiet=True)
    by_chance = no_training[10:]
    no_training.clear()
    result = sweep(recipe_file, [RATE, DROPOUT], tmp_path / sampler, sampler=sampler, trials=30, quiet=True)
    learned = no_training[10:]  # the first ten are random

    def distance(trials: list[dict[str, Any]]) -> float:
        return statistics.fmean(abs(math.log10(trial["rate"]) + 3) for trial in trials)

    assert distance(learned) < 0.8 * distance(by_chance)
    best = result.rows[0]
    assert abs(math.log10(best.values["training.learning_rate"]) + 3) < 0.3 and best.values["model.dropout"] == 0.2
    scores = [row.scores["cider"] for row in result.rows if row.scores]
    assert scores == sorted(scores, reverse=True)
    assert {row.error for row in result.rows if row.status == "failed"} <= {"It diverged."}


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_what_is_chosen_is_the_same_in_one_call_or_several(sampler, recipe_file, tmp_path, no_training):
    whole = sweep(recipe_file, [RATE], tmp_path / "whole", sampler=sampler, trials=16, seed=3, quiet=True)
    at_once = list(no_training)
    no_training.clear()
    for trials in (4, 11, 16, 16):
        parts = sweep(recipe_file, [RATE], tmp_path / "parts", sampler=sampler, trials=trials, seed=3, quiet=True)
    assert no_training == at_once
    assert parts.rows == whole.rows


def test_a_study_that_was_deleted_takes_over_what_has_ended(recipe_file, tmp_path, no_training):
    out = tmp_path / "out"
    before = sweep(recipe_file, [RATE], out, trials=12, quiet=True)
    (out / "sweep.db").write_text("no database at all" * 99)
    with pytest.raises(DataError, match=r"Cannot use .*sweep\.db: .*; delete it and run the same command again, which"):
        sweep(recipe_file, [RATE], out, trials=12, quiet=True)
    (out / "sweep.db").unlink()
    trained = len(no_training)
    assert sweep(recipe_file, [RATE], out, trials=12, quiet=True) == before
    assert len(no_training) == trained
    after = sweep(recipe_file, [RATE], out, sampler="tpe", trials=15, metric="loss", quiet=True)  # learns from those
    assert len(after.rows) == 15 and len(no_training) == trained + 3
    assert statistics.fmean(abs(math.log10(trial["rate"]) + 3) for trial in no_training[trained:]) < 1


def test_without_optuna_the_message_has_the_install_line(monkeypatch):
    for name in ("", "_space", "_study"):
        monkeypatch.delitem(sys.modules, f"showtell.training.sweep{name}")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingDependencyError) as caught:
        importlib.import_module("showtell.training.sweep")
    assert str(caught.value) == (
        'A sweep needs Optuna, which is not installed; install it with pip install "showtell[sweep]".'
    )


def test_two_processes_share_one_sweep(recipe_file, tmp_path):
    axes, out = ["model.dropout=0.1,0.2,0.3,0.4", "training.epochs=1"], tmp_path / "out"
    started = [
        subprocess.Popen(command(recipe_file, axes, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    errors = [process.communicate(timeout=200)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], errors
    trained = re.findall(r"^trial \d of 4: (.*)$", "".join(errors), re.MULTILINE)
    assert len(trained) == len(set(trained)) == 4 and all("trial " in error for error in errors)
    rows = json.loads((out / "sweep.json").read_text())["trials"]
    assert [row["status"] for row in rows] == ["finished"] * 4
    alone = sweep(recipe_file, axes, tmp_path / "alone", quiet=True)
    assert files_of_trials(out) == files_of_trials(alone.folder)


def test_a_trial_whose_process_was_killed_is_taken_over(recipe_file, tmp_path):
    """Of a sampler that learns: the trial is in the study alone, and its values are not chosen again."""
    axes, out = ["model.dropout=uniform(0.1..0.5)", "training.epochs=2"], tmp_path / "out"
    call = [*command(recipe_file, axes, out), "--sampler", "tpe", "--trials", "2"]
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(out.glob("*/last")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    (killed,) = [folder.parent.name for folder in out.glob("*/last")]
    result = sweep(recipe_file, axes, out, sampler="tpe", trials=2, quiet=True)
    assert killed in {row.run for row in result.rows} and {row.status for row in result.rows} == {"finished"}
    whole = sweep(recipe_file, axes, tmp_path / "whole", sampler="tpe", trials=2, quiet=True)
    assert result.rows == whole.rows and files_of_trials(out) == files_of_trials(whole.folder)


# ---- as people call it


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


def test_the_verb_prints_a_table_or_json_and_fails_if_every_trial_does(recipe_file, tmp_path):
    call = ["sweep", str(recipe_file), "encoder.weights=none.safetensors", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 2
    assert shown.stdout.startswith("encoder.weights   cider  epoch  run\nnone.safetensors  -      -      failed: ")
    content = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)
    assert content["sweep"] == str(tmp_path / "out") and content["metric"] == "cider"
    assert content["trials"][0]["status"] == "failed"
    shown = CliRunner().invoke(app, [*call, "model.dropout=uniform(0.1..0.5)", "--trials", "3", "--json"])
    dropouts = [trial["values"]["model.dropout"] for trial in json.loads(shown.stdout)["trials"]]
    assert len(set(dropouts)) == 3 and all(0.1 <= value <= 0.5 for value in dropouts)
