"""Run folders that something damaged, and disks that fill up while a run is written."""

import json
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.errors import ShowtellError
from showtell.reports.run import read_run
from showtell.reports.run_page import write_run_page
from showtell.training.checkpoints import RunCheckpoints
from showtell.training.state import Progress
from tests.bad_input.conftest import Captured, everything, refused, run
from tests.fuzzing import mutated
from tests.toys import room_for

RESUME = "train r.yaml --resume --out run"


@settings(max_examples=15)
@given(data=st.data())
def test_a_flipped_byte_of_what_is_resumed_from_is_noticed(data: st.DataObject, world: Path, capsys: Captured) -> None:
    """Whichever file of last/ it is in, or if one is gone."""
    files = sorted(filter(Path.is_file, Path("run/last").rglob("*")))
    assert len(files) == 5
    file = data.draw(st.sampled_from(files))
    whole = file.read_bytes()
    try:
        if data.draw(st.integers(0, 4)):
            changed = bytearray(whole)
            changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            file.write_bytes(changed)
        else:
            file.unlink()
        before = everything(Path("run"))
        assert "run/last" in refused(capsys, RESUME)
        assert everything(Path("run")) == before
    finally:
        file.write_bytes(whole)


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(["recipe.yaml", "log.jsonl"]))
def test_a_report_of_a_damaged_run_is_a_page_or_a_sentence(seed: int, name: str, world: Path) -> None:
    rng, file = random.Random(seed), Path("run", name)
    whole = file.read_bytes()
    lines = [json.dumps(yaml.safe_load(whole)).encode()] if name == "recipe.yaml" else whole.splitlines()
    number = rng.randrange(len(lines))
    lines[number] = mutated(lines[number], rng)
    file.write_bytes(b"\n".join(lines) + b"\n")
    try:
        write_run_page(Path("report.html"), read_run(Path("run")), None, [])
    except ShowtellError as error:
        assert str(file) in str(error) or str(error).startswith("run is damaged: training wrote")
    finally:
        file.write_bytes(whole)


def test_no_room_for_tensorboard(world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first checkpoint the disk is full."""
    command = "train r.yaml training.trackers=[tensorboard] training.log_every=1 training.batch_size=1 --out new"
    save = RunCheckpoints.save_last
    with ExitStack() as full, monkeypatch.context() as patch:

        def save_and_fill(self: RunCheckpoints, progress: Progress) -> None:
            save(self, progress)
            full.enter_context(room_for(Path("run/recipe.yaml").stat().st_size + 600))

        patch.setattr(RunCheckpoints, "save_last", save_and_fill)
        status, _, err = run(capsys, command)
    assert status == 2 and "Traceback" not in err and "Exception in thread" not in err
    last = err.splitlines()[-1]
    assert last.startswith("showtell: Cannot write") and "new" in last
    assert last.endswith("make room, then resume with --resume.")
    assert run(capsys, f"{command} --resume")[0] == 0
