"""Sweeps: which trials, that all are checked before one starts, the table, and that a kill changes nothing."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import signal
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from showtell.cli.app import app
from showtell.cli.sweep import table
from showtell.errors import DataError, RecipeError, UsageError
from showtell.training.sweep import (
    Range,
    Row,
    Sweep,
    Values,
    every_combination,
    parse_axis,
    random_combinations,
    sweep,
)
from tests.training.test_loop import fingerprints, stop_at


@pytest.fixture
def recipe_file(tiny_recipe: dict[str, Any], tmp_path: Path) -> Path:
    tiny_recipe["training"]["epochs"] = 2
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe))
    return file


# ---- which trials


def test_an_axis_is_read():
    assert parse_axis("model.hidden_size=16,24") == Values("model.hidden_size", (16, 24))
    assert parse_axis("encoder.widths=[8, 16],[8]") == Values("encoder.widths", ([8, 16], [8]))
    assert parse_axis("data.limit=null,5") == Values("data.limit", (None, 5))
    assert parse_axis("a.b=log(1e-4..1e-2)") == Range("a.b", 1e-4, 1e-2, logarithmic=True, whole=False)
    assert parse_axis("a.b=uniform(-1 .. 5)") == Range("a.b", -1, 5, logarithmic=False, whole=True)
    assert parse_axis("a.b=uniform(0.0..1)").whole is False


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
    axes = [Values("a.x", (1, 2)), Values("a.y", ("p", "q", "r"))]
    assert [tuple(values.values()) for values in every_combination(axes)] == [
        (1, "p"), (1, "q"), (1, "r"), (2, "p"), (2, "q"), (2, "r"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"a\.z is a range, from which --random N draws; without it, list values"):
        every_combination([*axes, parse_axis("a.z=log(1..2)")])


def test_draws_are_within_their_range_and_spread_over_it():
    log, uniform, whole = (
        parse_axis(f"a.b={text}") for text in ("log(1e-5..1e-1)", "uniform(0.2..0.6)", "log(8..512)")
    )
    chance = random.Random(0)
    drawn = [log.draw(chance) for _ in range(2000)]
    assert min(drawn) >= 1e-5 and max(drawn) <= 1e-1
    assert statistics.mean(map(math.log10, drawn)) == pytest.approx(-3, abs=0.08)  # 4 / sqrt(12 * 2000) is 0.026
    assert statistics.pstdev(map(math.log10, drawn)) == pytest.approx(4 / math.sqrt(12), abs=0.05)
    assert statistics.mean(uniform.draw(chance) for _ in range(2000)) == pytest.approx(0.4, abs=0.01)
    counts = [whole.draw(chance) for _ in range(200)]
    assert all(type(value) is int and 8 <= value <= 512 for value in counts)
    assert statistics.median(counts) == pytest.approx(64, rel=0.5)  # the middle of 2**3 .. 2**9
    assert {len(f"{value:e}".split("e")[0].rstrip("0")) <= 4 for value in drawn} == {True}  # three digits


def test_more_draws_begin_with_the_same_ones_and_none_comes_twice():
    axes = [parse_axis("a.x=log(1e-4..1e-2)"), parse_axis("a.y=1,2,3")]
    few, many = random_combinations(axes, 4, seed=3), random_combinations(axes, 9, seed=3)
    assert many[:4] == few
    assert random_combinations(axes, 4, seed=4) != few
    # another axis does not change what is drawn for these
    wider = random_combinations([*axes, parse_axis("a.z=0,1")], 4, seed=3)
    assert [{key: values[key] for key in ("a.x", "a.y")} for values in wider] == few
    finite = [parse_axis("a.x=1,2,3"), parse_axis("a.y=1,2")]
    drawn = random_combinations(finite, 6, seed=0)
    assert sorted(tuple(values.values()) for values in drawn) == [(x, y) for x in (1, 2, 3) for y in (1, 2)]
    with pytest.raises(UsageError, match="--random 7 is more than the 6 combinations; leave it out to train them all"):
        random_combinations(finite, 7, seed=0)


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
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "sweep.json"}
    assert sweep(recipe_file, axes, out, quiet=True) == result
    by_loss = sweep(recipe_file, axes, out, metric="loss", quiet=True)
    losses = [row.scores["loss"] for row in by_loss.rows[:2]]
    assert losses == sorted(losses) and by_loss.rows[2] == bad
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.name != "sweep.json"}
    # With more values, what is new alone; with --retry, what failed.
    assert capsys.readouterr().err == ""
    sweep(recipe_file, [axes[0] + ",0.02", axes[1]], out)
    assert "trial 4 of 4: learning_rate=0.02,weights=random" in (said := capsys.readouterr().err)
    assert said.count("weights to train") == 1
    sweep(recipe_file, axes, out, retry=True)
    assert "trial 2 failed: The loss is " in (said := capsys.readouterr().err)
    assert said.count("weights to train") == 1
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
    assert fingerprints(broken) == fingerprints(whole)


def command(recipe: Path, axes: list[str], out: Path) -> list[str]:
    return [sys.executable, "-m", "showtell", "sweep", str(recipe), *axes, "--out", str(out)]


def test_ctrl_c_ends_the_sweep_and_leaves_its_trial_to_go_on(recipe_file, tmp_path):
    axes, out = ["model.dropout=0.1,0.3"], tmp_path / "out"
    first = out / "dropout=0.1"
    assert stop_at(command(recipe_file, axes, out), first / "log.jsonl", 3, signal.SIGINT) == 130
    assert (first / "last").exists() and not (first / "trial.json").exists()
    assert not (out / "dropout=0.3").exists()


# ---- as people call it


def test_the_table_has_a_line_for_each_trial():
    rows = (
        Row("a", {"model.cell": "gru", "m.x": 2}, "finished", 3, {"loss": 1.5, "bleu_4": 0.25, "cider": 0.8}),
        Row("b", {"model.cell": "lstm", "m.x": None}, "failed", error="It diverged."),
        Row("c", {"model.cell": "lstm", "m.x": 3}),
    )
    assert table(Sweep(Path("s"), "cider", rows)).splitlines() == [
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
    drawn = CliRunner().invoke(app, [*call, "model.dropout=uniform(0.1..0.5)", "--random", "3", "--json"])
    dropouts = [trial["values"]["model.dropout"] for trial in json.loads(drawn.stdout)["trials"]]
    assert len(set(dropouts)) == 3 and all(0.1 <= value <= 0.5 for value in dropouts)
