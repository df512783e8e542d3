"""Run folders that something damaged, and disks that fill up while a run is written."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bad_input.conftest import Captured, everything, refused, run
from tests.toys import room_for

STATE = Path("run/last/training")
RESUME = "train r.yaml --resume --out run"


def test_a_damaged_training_state_is_refused(world: Path, capsys: Captured) -> None:
    state, tensors = STATE / "state.json", STATE / "optimizer.safetensors"
    numbers, weights = json.loads(state.read_text()), tensors.read_bytes()
    cut = json.dumps(numbers)[:-9]
    contents: list[str] = ["", cut, *map(json.dumps, ([numbers], None, {}))]
    contents += [json.dumps({**numbers, "progress": value}) for value in (3, {"step": "x"}, {"scaler": {"scale": "x"}})]
    contents += [
        json.dumps({**numbers, "optimizer": value}) for value in (3, {}, {**numbers["optimizer"], "plain": [1]})
    ]
    for content in contents:
        state.write_text(content)
        before = everything(world)
        sentence = refused(capsys, RESUME)
        assert "run/last/training" in sentence and ("damaged" in sentence or "JSON" in sentence), content
        assert everything(world) == before
    state.write_text(json.dumps(numbers))
    for damaged in (weights[:-9], weights[:8] + b"x" + weights[9:], weights.replace(b"state.0.", b"state.x.", 1)):
        tensors.write_bytes(damaged)
        assert refused(capsys, RESUME).startswith(f"The training state is damaged: {tensors} ")
    tensors.unlink()
    sentence = refused(capsys, RESUME)
    assert sentence.startswith(f"The training state is damaged: {tensors} cannot be read (No such file or directory")
    assert sentence.endswith("begin anew with another --out, from its best/ with training.start_from.")


def test_no_room_for_tensorboard(world: Path, capsys: Captured) -> None:
    command = "train r.yaml training.trackers=[tensorboard] training.log_every=1 training.batch_size=1 --out new"
    with room_for(Path("run/recipe.yaml").stat().st_size + 600):
        status, _, err = run(capsys, command)
    assert status == 2 and "Traceback" not in err and "Exception in thread" not in err
    last = err.splitlines()[-1]
    assert last.startswith("showtell: Cannot write") and "new" in last
    assert last.endswith("make room, then resume with --resume.")
    assert run(capsys, f"{command} --resume")[0] == 0
