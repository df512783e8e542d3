"""`showtell doctor`: what is installed, and what a captioner knows beside a dataset."""

import importlib.metadata
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from showtell import doctor
from showtell.captioners import Captioner
from showtell.datasets import read_dataset
from showtell.doctor import checkpoint_causes, dataset_causes, inspect_machine
from tests.cli.test_caption import Captured, run
from tests.datasets.makers import write_table


def changed(tiny_checkpoint: Path, folder: Path, **changes: Any) -> list[str]:
    """The causes of the checkpoint with other values in its settings: part={key: value}."""
    shutil.copytree(tiny_checkpoint, folder)
    settings = json.loads((folder / "config.json").read_text())
    for part, values in changes.items():
        settings[part].update(values)
    (folder / "config.json").write_text(json.dumps(settings))
    return checkpoint_causes(Captioner.from_pretrained(folder, device="cpu"))


def test_what_is_missing_is_told_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect_machine()["torch"] == importlib.metadata.version("torch")
    version = doctor._version
    versions = {"snowballstemmer": "3.0", "torch": "2.5.1"}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name) or version(name))
    missing = {sentence.partition(" ")[0]: sentence for sentence in inspect_machine()["missing"]}
    assert missing["meteor"].startswith("meteor needs snowballstemmer")
    assert missing["meteor"].endswith('pip install "snowballstemmer<3,>=2.2"')
    assert missing["showtell"].startswith("showtell needs torch>=")


def test_causes_in_a_checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_checkpoint, tmp_path / "run" / "best")
    assert changed(tiny_checkpoint, tmp_path / "same") == []
    for name, changes, sentence in (
        ("tokenizer", {"vocabulary": {"tokenizer": "ptb-0"}}, "was made with the tokenizer ptb-0, and this showtell"),
        ("few", {"about": {"train_images": 107}}, "learned from 107 photos, which are too few to learn from scratch"),
        ("greedy", {"decoding": {"num_beams": 1}}, "The checkpoint decodes greedily"),
        ("run/last", {}, f"{tmp_path / 'run' / 'best'} has the highest validation score"),
    ):
        (cause,) = changed(tiny_checkpoint, tmp_path / name, **changes)
        assert sentence in cause
    assert changed(tiny_checkpoint, tmp_path / "started", about={"train_images": 107, "start_from": "best"}) == []


def test_causes_beside_a_dataset(tiny_checkpoint: Path, tiny_scenes: Path) -> None:
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    captioner.origin = {"data": "runs/shapes", "train_images": 4000}
    facts, causes = dataset_causes(captioner, read_dataset(tiny_scenes), "train")
    assert facts["split"] == "train" and facts["images"] > 0 and 0 <= facts["unknown"] <= 1
    told = "\n".join(causes)
    for sentence in ("train is what models learn from", "CIDEr learns from them", "learned from 4000 photos of runs/"):
        assert sentence in told


def test_words_that_a_checkpoint_does_not_know_and_captions_longer_than_its_own(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    captions = ("A red circle.", "A zebra.", "a")  # 1 of 6 words is unknown, 1 of 3 captions has more than 2
    rows = "".join(f"a.png,{caption},test\n" for caption in captions)
    write_table(tmp_path, f"image,caption,split\n{rows}", "a.png")
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    captioner.decoding = captioner.decoding.changed(max_length=2)
    facts, causes = dataset_causes(captioner, read_dataset(tmp_path), "test")
    assert (facts["unknown"], facts["longer"]) == (1 / 6, 1 / 3)
    told = "\n".join(causes)
    assert "does not know 16.7% of the words of test, so it can never write them" in told
    assert "writes at most 2 words, and 33.3% of the captions of test are longer: raise" in told


def test_the_verb(tiny_checkpoint: Path, tiny_scenes: Path, capsys: Captured) -> None:
    status, out, err = run(capsys, "doctor")
    assert (status, err) == (0, "") and out.startswith("machine:\n  python: 3.") and "cause" not in out
    command = ["doctor", str(tiny_checkpoint), "--data", str(tiny_scenes)]
    status, out, err = run(capsys, *command)
    assert (status, err) == (0, "") and "  split: test\n" in out and "\ncause: test has " in out
    report = json.loads(run(capsys, *command, "--split", "val", "--json")[1])
    assert set(report) == {"machine", "checkpoint", "data", "causes"} and report["data"]["split"] == "val"
