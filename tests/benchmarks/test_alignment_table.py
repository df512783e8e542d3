"""The table of alignment, as a person makes it from the runs of old_papers.py."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from showtell.captioner import Captioner
from showtell.datasets import open_dataset
from showtell.explanations.alignment import measure_alignment, phrase_begins


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as `python benchmarks/alignment.py` finds it, with old_papers beside it."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    return importlib.import_module("alignment")


def test_the_table_has_what_the_model_does(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tiny_checkpoint: Path, tiny_scenes: Path, tmp_path: Path
) -> None:
    out, docs = tmp_path / "out", tmp_path / "results.md"
    shutil.copytree(tiny_scenes, out / "scenes")
    for seed in ("0", "1"):
        shutil.copytree(tiny_checkpoint, out / "runs" / "sat_soft" / seed / "best")
        (out / "runs" / "sat_soft" / seed / "result.json").write_text("{}")
    docs.write_text("before\n<!-- alignment: begin -->\nold\n<!-- alignment: end -->\nafter\n")
    given = ["--out", str(out), "--docs", str(docs), "--splits", "train", "--permutations", "19", "--json"]
    assert script.main(given) == 0
    records = open_dataset(tiny_scenes).split("train")
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    expected = measure_alignment(captioner, records, begins=phrase_begins, permutations=19)
    first = json.loads(capsys.readouterr().out)[0]
    assert first["name"] == "sat_soft_references_moved"
    scores = expected.report.scores
    assert first["value"] == pytest.approx(scores["moved_begins"])
    assert first["ratio"] == pytest.approx(scores["moved_begins"] / scores["moved_within"])  # type: ignore[operator]
    assert first["p"] == expected.p
    text = docs.read_text()
    assert text.startswith(
        "before\n<!-- alignment: begin -->\n\nCorrelations:\n\n| model | captions | goals, attention |"
    )
    assert text.endswith("<!-- alignment: end -->\nafter\n")
    assert f"| {scores['attention_phrases']:.3f} [" in text
    assert "Goals:" not in text
    assert "old" not in text


def test_runs_that_are_not_there_are_a_sentence(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tiny_scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_scenes, tmp_path / "scenes")
    assert script.main(["--out", str(tmp_path)]) == 2
    assert "has no finished run of sat_soft" in capsys.readouterr().err
