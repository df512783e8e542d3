"""Tables that a person makes from the runs of old_papers.py, and where they are put."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import alignment
import attention_numbers
from documents import markers_of, write_between
from goal_alignment import measure_alignment, phrase_begins
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.grounding.pointing import measure_attention


@pytest.fixture
def runs(tiny_checkpoint: Path, tiny_scenes: Path, tmp_path: Path) -> Path:
    """What old_papers.py leaves: pictures, and two seeds of a row, here of the same weights."""
    shutil.copytree(tiny_scenes, tmp_path / "out" / "scenes")
    for seed in ("0", "1"):
        folder = tmp_path / "out" / "runs" / "sat_soft" / seed
        shutil.copytree(tiny_checkpoint, folder / "best")
        (folder / "result.json").write_text("{}")
    return tmp_path / "out"


def document(folder: Path, table: str) -> Path:
    begin, end = markers_of(table)
    path = folder / "results.md"
    path.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    return path


def test_alignment_is_what_the_model_does(
    runs: Path, tiny_scenes: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = document(tmp_path, "alignment")
    given = ["--out", str(runs), "--docs", str(docs), "--splits", "train", "--permutations", "19", "--json"]
    assert alignment.main(given) == 0
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
    assert f"], p {expected.p['attention_phrases']:.4f} |" in text
    assert "Goals:" not in text
    assert "old" not in text


def test_attention_is_what_the_model_scores(
    runs: Path, tiny_scenes: Path, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = document(tmp_path, "attention")
    assert attention_numbers.main(["--out", str(runs), "--docs", str(docs), "--images", "2", "--json"]) == 0
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


@pytest.mark.parametrize("script", [alignment, attention_numbers])
def test_runs_that_are_not_there_are_a_sentence(script, tiny_scenes, tmp_path, capsys):
    shutil.copytree(tiny_scenes, tmp_path / "scenes")
    assert script.main(["--out", str(tmp_path)]) == 2
    assert f"{script.__name__}: {tmp_path} has no finished run of " in (message := capsys.readouterr().err)
    assert "sat_soft" in message


def test_unknown_rows_are_answered_with_the_known_ones(tmp_path, capsys):
    with pytest.raises(SystemExit) as left:
        attention_numbers.main(["--out", str(tmp_path), "--rows", "sat_sotf"])
    assert left.value.code == 2
    assert "no such row: sat_sotf; there are nic_gru, " in capsys.readouterr().err


def test_tables_go_between_the_markers_and_nowhere_else(tmp_path):
    begin, end = markers = markers_of("measured")
    path = tmp_path / "results.md"
    path.write_text(f"# Results\n\nBefore.\n\n{begin}\n\nold\n\n{end}\n\nAfter.\n")
    for _ in range(2):
        write_between(path, "new | table", markers)
        assert path.read_text() == f"# Results\n\nBefore.\n\n{begin}\n\nnew | table\n\n{end}\n\nAfter.\n"
    path.write_text(f"{end} {begin}")
    with pytest.raises(DataError, match=r"results\.md needs the lines <!-- measured: begin --> and <!-- measured: end"):
        write_between(path, "new", markers)
