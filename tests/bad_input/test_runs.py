"""Run folders that something damaged, disks that fill up while a run is written, and what launchers set wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from filelock import FileLock
from safetensors.torch import load_file, save_file

from showtell.errors import RecipeError
from showtell.training import make_recipe
from tests.bad_input.conftest import RECIPE, everything
from tests.bad_input.test_machine import Captured, refused, room_for, run

STATE = Path("run/last/training")
RESUME = "train r.yaml --resume --out run"


# --- the training state


@pytest.mark.parametrize("name", ["optimizer.safetensors", "state.json", "checksums.json"])
@pytest.mark.parametrize("position", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_one_flipped_bit_of_the_training_state_is_refused(
    world: Path, capsys: Captured, name: str, position: float
) -> None:
    content = bytearray((STATE / name).read_bytes())
    content[round(position * (len(content) - 1))] ^= 4
    (STATE / name).write_bytes(content)
    before = everything(world)
    sentence = refused(capsys, RESUME)
    assert "run/last/training/" in sentence and ("damaged" in sentence or "JSON" in sentence or "UTF-8" in sentence)
    assert everything(world) == before


def test_a_missing_file_of_the_training_state_is_refused(world: Path, capsys: Captured) -> None:
    (STATE / "optimizer.safetensors").unlink()
    assert refused(capsys, RESUME) == (
        "The training state is damaged: run/last/training/optimizer.safetensors cannot be read (No such file or "
        "directory); begin anew with another --out, from its best/ with training.start_from."
    )


def key_of_state(*path: str, value: Any) -> Callable[[Any], Any]:
    def change(state: Any) -> Any:
        inner = state
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        return state

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda state: [state],
        lambda state: None,
        lambda state: 3,
        lambda state: {},
        *[key_of_state("progress", value=value) for value in ([], 3, None, {}, {"step": 1, "unknown": 2})],
        *[key_of_state("progress", "step", value=value) for value in ("x", 1.5, None, [], True)],
        *[key_of_state("progress", "best", value=value) for value in ("x", [], {})],
        key_of_state("progress", "scaler", value={"scale": "x"}),
        *[key_of_state("optimizer", value=value) for value in ([], 3, None, {})],
        key_of_state("optimizer", "param_groups", value=3),
        key_of_state("optimizer", "param_groups", value=[]),
        key_of_state("optimizer", "plain", value={"x": {}}),
        key_of_state("optimizer", "plain", value=[1]),
    ],
)
def test_a_state_of_wrong_types_is_refused_where_no_checksum_tells(
    world: Path, capsys: Captured, change: Callable[[Any], Any]
) -> None:
    """As runs of older versions are, and those that a person edited."""
    (STATE / "checksums.json").unlink()
    state = change(json.loads((STATE / "state.json").read_text()))
    (STATE / "state.json").write_text(json.dumps(state))
    sentence = refused(capsys, RESUME)
    assert sentence.startswith("The training state is damaged: run/last/training")
    assert sentence.endswith("begin anew with another --out, from its best/ with training.start_from.")


@pytest.mark.parametrize(
    "names", [{"state.0.exp_avg": "x"}, {"state.0.exp_avg": "state.0"}, {"state.0.exp_avg": "state.99999.exp_avg"},
              {"state.0.exp_avg": "state.x.exp_avg"}, {"state.0.exp_avg": "other"}],
)  # fmt: skip
def test_optimiser_tensors_under_other_names_are_refused(world: Path, capsys: Captured, names: dict[str, str]) -> None:
    (STATE / "checksums.json").unlink()
    tensors = load_file(STATE / "optimizer.safetensors")
    assert names.keys() <= tensors.keys()
    save_file({names.get(name, name): tensor for name, tensor in tensors.items()}, STATE / "optimizer.safetensors")
    assert refused(capsys, RESUME).startswith("The training state is damaged: run/last/training/optimizer.safetensors ")


def test_a_run_of_an_older_version_resumes(world: Path, capsys: Captured) -> None:
    """Without checksums, with the names of its time, in the log, the training state and the recipe."""
    (STATE / "checksums.json").unlink()
    weights = load_file("run/last/model.safetensors")
    state = json.loads((STATE / "state.json").read_text())
    state["memory"] = state.pop("progress")
    (STATE / "state.json").write_text(json.dumps(state))
    recipe = yaml.safe_load(Path("run/recipe.yaml").read_text())
    recipe["training"]["selection"] = recipe["training"].pop("selection_metric")
    recipe["training"]["pilot"] = {"least_cider": 0.05, "returns": 3}
    del recipe["training"]["reward_watchdog"]
    Path("run/recipe.yaml").write_text(yaml.safe_dump(recipe))
    status, out, err = run(capsys, RESUME)
    assert status == 0 and out.startswith("run/best"), err
    after = load_file("run/last/model.safetensors")
    assert all(torch.equal(weights[name], after[name]) for name in weights)


# --- the log


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        *[(line, "is not a JSON object; the log is damaged") for line in (b"[]", b"3", b"null")],
        (b"{}", "it has no step"),
        (b'{"step": "x", "epoch": 1}', "its step is text"),
        (b'{"step": 1, "epoch": null}', "its epoch is null"),
        (b'{"step": 1, "epoch": 1, "validation": 3}', "its validation is a number; delete the line"),
        (b'{"step": 1, "epoch": 1, "validation": {"cider": "x"}}', "its validation cider is text; delete the line"),
        (b'{"step": 1, "epoch": 1, "warnings": "x"}', "its warnings is text; delete the line"),
        (b"[" * 5000, "nested too deeply"),
        (b'{"step": 1, "epoch": 1, "loss": ' + b"9" * 5000 + b"}", "too many digits"),
        (b'{"step": 1,', "is not valid JSON"),
    ],
)
def test_a_report_names_the_damaged_line_of_a_log(world: Path, capsys: Captured, line: bytes, reason: str) -> None:
    first, rest = Path("run/log.jsonl").read_bytes().split(b"\n", 1)
    Path("run/log.jsonl").write_bytes(first + b"\n" + line + b"\n" + rest)
    sentence = refused(capsys, "report run --out r.html --no-score")
    assert sentence.startswith("Line 2 of run/log.jsonl ") and reason in sentence
    assert not Path("r.html").exists()


def test_a_report_of_a_log_that_is_no_text_is_refused(world: Path, capsys: Captured) -> None:
    with Path("run/log.jsonl").open("ab") as stream:
        stream.write(b"\xff\n")
    assert refused(capsys, "report run --out r.html --no-score").startswith("run/log.jsonl is not in UTF-8: line ")


@pytest.mark.parametrize("content", ["[]", "3", "null", '{"progress": 3}', '{"progress": {"best": "x"}}'])
def test_a_report_names_a_damaged_state(world: Path, capsys: Captured, content: str) -> None:
    (STATE / "state.json").write_text(content)
    assert refused(capsys, "report run --out r.html --no-score").startswith("run/last/training/state.json is damaged: ")


@pytest.mark.parametrize("section", ["data", "training", "model"])
def test_a_report_names_a_damaged_recipe(world: Path, capsys: Captured, section: str) -> None:
    recipe = yaml.safe_load(Path("run/recipe.yaml").read_text())
    Path("run/recipe.yaml").write_text(yaml.safe_dump({**recipe, section: 3}))
    assert "run/recipe.yaml is damaged" in refused(capsys, "report run --out r.html --no-score")


# --- while a run is written


def test_no_room_for_tensorboard(world: Path, capsys: Captured) -> None:
    command = "train r.yaml training.trackers=[tensorboard] training.log_every=1 training.batch_size=1 --out new"
    with room_for(Path("run/recipe.yaml").stat().st_size + 600):
        status, _, err = run(capsys, command)
    assert status == 2 and "Traceback" not in err and "Exception in thread" not in err
    last = err.splitlines()[-1]
    assert last.startswith("showtell: Cannot write") and "new" in last
    assert last.endswith("make room, then resume with --resume.")
    assert run(capsys, f"{command} --resume")[0] == 0


def test_two_quickstarts_do_not_share_a_folder(world: Path, capsys: Captured) -> None:
    Path("quick").mkdir()
    with FileLock("quick/.writing.lock"):
        sentence = refused(capsys, "quickstart --out quick --images 20")
    assert sentence == "Another program is running a quickstart in quick; wait for it, or choose another --out."
    assert [path.name for path in Path("quick").iterdir()] == [".writing.lock"]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("WORLD_SIZE", "x", 'The environment variable WORLD_SIZE should be a whole number, and is "x"; unset it.'),
        ("WORLD_SIZE", "-1", 'The environment variable WORLD_SIZE should be a whole number, and is "-1"; unset it.'),
        ("LOCAL_RANK", "", 'The environment variable LOCAL_RANK should be a whole number, and is ""; unset it.'),
        (
            "ACCELERATE_USE_CPU",
            "maybe",
            'The environment variable ACCELERATE_USE_CPU should be true or false, and is "maybe"; unset it.',
        ),
    ],
)
def test_what_launchers_set_is_checked(
    world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(name, value)
    assert refused(capsys, "train r.yaml --out new") == sentence
    assert not Path("new").exists()


# --- values that no setting takes


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        *[(f"{section}.name", value, f"{section}.name: should be a name, got {value!r}")
          for section in ("encoder", "model", "objective") for value in (["a"], {}, 3, None, True)],
        *[("training.optimizer", {"betas": betas}, "training.optimizer.betas.")
          for betas in ([1.0, 0.9], [0.9, -1], [0.9, 1.5])],
        ("training.optimizer", {"betas": [0.9]}, "training.optimizer.betas.1: this key is needed and missing"),
        ("data.path", "a\0b", "data.path: should be text without a NUL character, got 'a\\x00b'"),
        ("data.features", "\0", "data.features: should be text without a NUL character"),
        ("data.path", "\ud800", "data.path: should be valid Unicode text, got '\\ud800'"),
        ("training.trackers", ["a\0"], "training.trackers: should be text without a NUL character"),
        *[(key, 2**63, f"{key}: should be a number of at most 64 bits, got 9223372036854775808")
          for key in ("model.hidden_size", "training.epochs", "training.seed", "data.limit", "training.save_every")],
        ("training.optimizer", {"momentum": 10**400}, "training.optimizer.momentum: should be a number of at most 64"),
        ("encoder.widths", [8] * 5000, "encoder.widths: "),
        ("encoder.widths", [2**62], "encoder.widths.0: "),
        ("model.hidden_size", 2**40, "model.hidden_size: "),
        ("data.workers", 10**6, "data.workers: "),
    ],
)  # fmt: skip
def test_what_no_setting_takes_is_refused_by_its_key(key: str, value: Any, sentence: str) -> None:
    content = {section: dict(values) for section, values in RECIPE.items()}
    section, name = key.split(".")
    content[section][name] = value
    with pytest.raises(RecipeError) as caught:
        make_recipe(content)
    assert f"\n  {sentence}" in str(caught.value)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("name", ["small_cnn", "faster_rcnn"])
def test_weights_in_a_home_that_is_not_there_are_a_sentence(
    world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("HOME", raising=False)
    sentence = refused(capsys, f"features scenes --encoder {name} --weights ~nobody-here/w.pt --out new")
    assert "~nobody-here/w.pt" in sentence
