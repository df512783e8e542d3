"""The table of attention's numbers, as a person makes it from the runs of old_papers.py."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from showtell.captioner import Captioner
from showtell.datasets import open_dataset
from showtell.explanations.pointing import measure_attention


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as `python benchmarks/attention_numbers.py` finds it, with old_papers beside it."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    return importlib.import_module("attention_numbers")


def test_the_table_has_what_the_model_scores(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Path,
    tiny_scenes: Path,
    tmp_path: Path,
) -> None:
    out, docs = tmp_path / "out", tmp_path / "results.md"
    shutil.copytree(tiny_scenes, out / "scenes")
    for seed in ("0", "1"):
        shutil.copytree(tiny_checkpoint, out / "runs" / "sat_soft" / seed / "best")
        (out / "runs" / "sat_soft" / seed / "result.json").write_text("{}")
    docs.write_text("before\n<!-- attention: begin -->\nold\n<!-- attention: end -->\nafter\n")
    assert script.main(["--out", str(out), "--docs", str(docs), "--images", "2", "--json"]) == 0
    records = open_dataset(tiny_scenes).limited(2, 2).split("test")
    expected = measure_attention(Captioner.from_pretrained(tiny_checkpoint), records).report.scores
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    pointing = rows["sat_soft_pointing"]
    assert pointing["value"] == expected["pointing"]
    assert pointing["ratio"] == expected["pointing"] / expected["chance_pointing"]
    text = docs.read_text()
    assert text.startswith("before\n<!-- attention: begin -->\n\n| model | pointing |")
    assert text.endswith("<!-- attention: end -->\nafter\n")
    assert f"| sat, soft attention | {expected['pointing']:.3f} [" in text
    assert "old" not in text


def test_runs_that_are_not_there_are_a_sentence(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tiny_scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_scenes, tmp_path / "scenes")
    assert script.main(["--out", str(tmp_path)]) == 2
    assert "has no finished run of sat_soft" in capsys.readouterr().err
