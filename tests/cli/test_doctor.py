import json
from pathlib import Path

import pytest

from tests.cli.test_data_check import Captured, run


def test_the_machine_alone(capsys: Captured) -> None:
    status, out, err = run(capsys, "doctor")
    assert (status, err) == (0, "")
    assert out.startswith("python 3.") and "\ncores:" in out and "cause" not in out


def test_a_checkpoint_and_a_dataset_in_words(tiny_checkpoint: Path, tiny_scenes: Path, capsys: Captured) -> None:
    status, out, err = run(capsys, "doctor", str(tiny_checkpoint), "--data", str(tiny_scenes), "--sample", "3")
    assert (status, err) == (0, "")
    assert "  split: test\n" in out and "  captioned: 3\n" in out
    causes = [line for line in out.splitlines() if line.startswith("cause: ")]
    assert any(line.startswith("cause: test has ") and "CIDEr learns from them" in line for line in causes)


def test_one_json_object(tiny_checkpoint: Path, tiny_scenes: Path, capsys: Captured) -> None:
    command = ["doctor", str(tiny_checkpoint), "--data", str(tiny_scenes), "--split", "val", "--sample", "2", "--json"]
    status, out, err = run(capsys, *command)
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert set(report) == {"machine", "checkpoint", "data", "causes"}
    assert report["data"]["split"] == "val" and report["machine"]["cores"] >= 1
    assert all(set(cause) == {"name", "sentence"} for cause in report["causes"])
    status, out, _ = run(capsys, "doctor", str(tiny_checkpoint), "--json")
    assert json.loads(out)["causes"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data", "x"], "A dataset is diagnosed for a checkpoint: showtell doctor CHECKPOINT --data DATASET;"),
        (["CHECKPOINT", "--split", "val"], "--split goes with --data DATASET."),
        (["CHECKPOINT", "--data", "nowhere"], "There is no file or folder nowhere."),
        (["nowhere"], "There is no checkpoint folder nowhere;"),
        (["CHECKPOINT", "--data", "SCENES", "--split", "mine"], 'has no split "mine"'),
    ],
)
def test_wrong_use(
    tiny_checkpoint: Path, tiny_scenes: Path, capsys: Captured, arguments: list[str], sentence: str
) -> None:
    given = {"CHECKPOINT": str(tiny_checkpoint), "SCENES": str(tiny_scenes)}
    status, out, err = run(capsys, "doctor", *[given.get(argument, argument) for argument in arguments])
    assert (status, out) == (2, "") and sentence in err
