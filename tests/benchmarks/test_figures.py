"""The committed figures are small and explained, and the rules that choose their pictures choose what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import figures
from figures import FAILURES, FIGURES, Runs, draw_failures, main, save, table_of_failures
from showtell.datasets import open_dataset
from showtell.scenes import read_scenes
from showtell.scenes.truth import judge

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "figures"


@pytest.fixture
def runs(tiny_scenes: Path, tmp_path: Path) -> Runs:
    """Captions of `sat_soft` before, all false; after rewards the first is true, the second keeps a true statement."""
    (tmp_path / "scenes").symlink_to(tiny_scenes)
    records = open_dataset(tiny_scenes).split("test")
    scenes = read_scenes(tiny_scenes)
    assert scenes is not None
    false = {record.image_id: "nonsense" for record in records}
    true = next(text for text in records[0].captions if judge(text, scenes[records[0].image_id]).whole)
    kept = next(text for text in records[1].captions if judge(text, scenes[records[1].image_id]).whole)
    partly = f"{kept} and a white star and a white star"
    after = false | {records[0].image_id: true, records[1].image_id: partly}
    for row, captions in (("sat_soft", false), ("sat_soft_sc", after)):
        folder = tmp_path / "runs" / row / "0"
        folder.mkdir(parents=True)
        (folder / "test.json").write_text(json.dumps(captions))
    return Runs(tmp_path)


def test_failures_are_the_first_pictures_with_a_false_statement_and_both_captions_stand_beside_them(runs: Runs):
    (figure,) = draw_failures(runs)
    texts = [text.get_text() for text in figure.texts]
    chosen = runs.records()[:FAILURES]
    assert len(figure.axes) == len(chosen)
    assert sum(text == "nonsense" for text in texts) == 2 * len(chosen) - 2
    assert sum(text.startswith("before: 0 of 0") for text in texts) == len(chosen)
    statements = len(
        judge(runs.captions("sat_soft_sc")[chosen[0].image_id], figures._scenes(runs)[chosen[0].image_id]).statements
    )
    assert f"after: {statements} of {statements} statements hold" in texts
    pixels = torch.tensor(figure.axes[1].images[0].get_array())
    with Image.open(chosen[1].path) as photo:
        assert tuple(pixels.shape[:2]) == photo.size[::-1]


def test_the_table_counts_what_became_of_the_captions_of_the_whole_split(runs: Runs):
    pictures = len(runs.records())
    changes, kinds = table_of_failures(runs).split("\n\n")
    _, _, false, right = changes.split("\n")
    partly = judge(
        runs.captions("sat_soft_sc")[runs.records()[1].image_id], figures._scenes(runs)[runs.records()[1].image_id]
    )
    better = 0 < partly.share < 1
    assert false == f"| a false statement | {pictures} | 1 | {int(better)} | {pictures - 1 - better} | 0 |"
    assert right == "| no false statement | 0 | 0 | 0 | 0 | 0 |"
    after, scenes = runs.captions("sat_soft_sc"), figures._scenes(runs)
    said = [one for image, scene in scenes.items() for one in judge(after[image], scene).statements]
    shapes = [one.holds for one in said if one.kind == "shape"]
    assert f"| shape | 0 | – | {len(shapes)} | {sum(shapes) / len(shapes):.3f} |" in kinds


def test_a_figure_without_its_runs_is_named_and_the_others_are_drawn(runs: Runs, tmp_path: Path, capsys):
    assert main(["--out", str(runs.out), "--folder", str(tmp_path / "figures"), "--only", "goals,failures"]) == 2
    output = capsys.readouterr()
    assert re.search(r"figures: goals: .*/hacap/0/test\.json does not exist; finish the row hacap", output.err)
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["failures.png"]


def test_an_unknown_figure_is_refused_with_those_that_there_are(tmp_path: Path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path), "--only", "loss"])
    assert "no such figure: loss; there are attention, stages, goals, failures" in capsys.readouterr().err


def test_files_are_palettes_that_keep_the_colours(tmp_path: Path):
    figure = figures.Figure(figsize=(2, 1), facecolor="white")
    figure.add_axes((0, 0, 1, 1)).imshow([[[255, 0, 0], [200, 190, 220]]], aspect="auto")
    save(figure, tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        assert image.mode == "P"
        assert image.convert("RGB").getpixel((3 * image.width // 4, image.height // 2)) == (200, 190, 220)


def test_committed_figures_are_small_and_pages_show_each_with_a_text_and_its_command():
    files = sorted(FOLDER.iterdir())
    pages = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")}
    shown = [
        name for page in pages.values() for name in re.findall(r"!\[[^\]]{20,}\]\((?:\.\./)?figures/([^)]+)\)", page)
    ]
    assert {path.name for path in files} == set(shown)
    assert all(path.stat().st_size < 150_000 for path in files)
    assert sum(path.stat().st_size for path in files) < 1_000_000
    assert "python benchmarks/figures.py" in pages["figures.md"]
    assert all(f"`--only {name}`" in pages["figures.md"] for name in FIGURES)
    assert "python benchmarks/gradient_norms.py" in pages["vanishing_gradients.md"]
    assert "benchmarks/plot_results.py" in pages["results.md"]
