import csv
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

import ablations
import real_photos
from old_papers import ROWS, main
from real_photos import Photos
from showtell.files import read_json, write_json
from showtell.scores import score
from showtell.training import make_recipe
from study import RATES, Row, Scenes, best_rate, command, missing_rates, pool_reports, seed_noise


def test_runs_are_pooled_image_by_image():
    """CIDEr-D becomes the mean over runs, BLEU that of the captions of all runs merged."""
    references = {"1": ["a red circle", "one red disc"], "2": ["two blue squares", "blue squares , two"]}
    runs = [{"1": "a red circle", "2": "two red squares"}, {"1": "one red circle there", "2": "two blue squares"}]
    reports = [score(captions, references, metrics=["bleu", "cider"]) for captions in runs]
    pooled = pool_reports(reports)

    values = [report.scores["cider"] or math.nan for report in reports]
    assert pooled.scores["cider"] == pytest.approx(sum(values) / 2)

    merged = {f"{image}/{number}": text for number, run in enumerate(runs) for image, text in run.items()}
    doubled = {f"{image}/{number}": texts for number in (0, 1) for image, texts in references.items()}
    expected = score(merged, doubled, metrics=["bleu"])
    for name in ("bleu_1", "bleu_2"):  # of longer n-grams there are none, and what stands for 0 depends on the length
        assert pooled.scores[name] == pytest.approx(expected.scores[name])


def test_every_row_of_a_study_is_a_valid_recipe_of_equal_effort(tmp_path):
    scenes, photos = Scenes(tmp_path, frozen_epochs=4, reward_epochs=3), Photos(tmp_path, photos=Path("photos"))
    for bench, rows in ((scenes, (*ROWS, *(one.row for one in ablations.INGREDIENTS))), (photos, real_photos.ROWS)):
        for row in rows:
            recipe = make_recipe(bench.recipe(row, seed=2, rate=0.009))
            assert (recipe.training.seed, recipe.training.learning_rate) == (2, 0.009), row
            assert recipe.encoder.trained == (row.view is None), row
            assert recipe.training.batch_size == (32 if bench is scenes else 16), row
            begins = None if row.start is None else str(tmp_path / "runs" / row.start / "2" / "best")
            assert recipe.training.start_from == ("small" if row.name == "small_sc" else begins), row
            if bench is photos and row.start is not None:  # or its weights could not be loaded
                start = next(one for one in real_photos.ROWS if one.name == row.start)
                assert recipe.model == make_recipe(bench.recipe(start, seed=2)).model, row
            if bench is scenes:
                assert recipe.training.epochs == (3 if row.start else 10 if row.view is None else 4), row
                assert recipe.data.captions_per_image == 2 and recipe.training.bucket == 16, row
    for one in ablations.INGREDIENTS:
        row, base = (make_recipe(scenes.recipe(row, 1, 0.009)) for row in (one.row, ablations.BASES[one.base]))
        assert row != base and row.data == base.data, one.name


def test_the_best_rate_on_validation_is_taken(tmp_path):
    bench = Scenes(tmp_path, rows={row.name: row for row in ROWS})
    row = bench.rows["updown"]

    def tried(rate: float, validation: float, row: Row = row, **more: Any) -> None:
        write_json(bench.results / row.trial_path(rate) / "result.json", {"validation": validation, **more})

    assert missing_rates(bench, row) == list(RATES)
    for rate, validation in zip(RATES, (0.5, 0.75, 0.75), strict=True):
        tried(rate, validation)
    assert best_rate(bench, row) == RATES[1]  # of equals the smaller
    assert missing_rates(bench, row) == []  # between two that are worse
    tried(RATES[2], 0.875)  # at the edge
    assert missing_rates(bench, row) == [0.081]
    tried(0.081, 0.5)
    assert (best_rate(bench, row), missing_rates(bench, row)) == (RATES[2], [])

    later = bench.rows["updown_sc"]
    tried(0.001, 0.75, later, origin={"start_rate": RATES[2]})
    tried(0.003, 0.875, later, origin={"start_rate": RATES[1]})  # from a start that is no longer the row's
    assert best_rate(bench, later) == 0.001
    assert best_rate(bench, Row("fast", "", "updown", rate=0.5)) == 0.5  # given, whatever others tried
    tried(RATES[0], 1.0)
    assert missing_rates(bench, row) == [0.001]
    tried(0.001, 1.5)
    tried(0.000333, 2.0)
    assert missing_rates(bench, row) == []  # of six at most


def test_what_seeds_bring_is_pooled_over_the_rows_that_have_several():
    assert seed_noise([[1, 3]]) == pytest.approx(12.706 * math.sqrt(2), rel=0.02)  # t of one degree of freedom
    pooled = math.sqrt((1 * 2 + 2 * 4) / 3)  # variances 2 and 4, of 1 and 2 degrees
    assert seed_noise([[1, 3], [0, 2, 4], [5], [7, None]]) == pytest.approx(3.182 * pooled, rel=0.01)
    assert math.isnan(seed_noise([[1], [2]]))


TOY = [
    "--images", "40", "--seeds", "1", "--jobs", "1", "--frozen-epochs", "1", "--trial-epochs", "1",
    "--reward-epochs", "1", "--rows", "sat_soft,updown,stack,sat_soft_sc,stack_c2f",
    "training.epochs=1", "training.warmup_steps=1", "encoder.image_size=48", "encoder.widths=[8,8]",
    "model.embedding_size=8", "model.hidden_size=8", "model.attention_size=8", "decoding.num_beams=1",
]  # fmt: skip


@pytest.mark.slow
def test_one_command_writes_the_results_and_again_does_only_what_is_missing(tmp_path, capsys):
    out = tmp_path / "out"
    command = [*TOY, "--out", str(out), "--results", str(tmp_path)]
    assert main(command) == 0
    results = sorted(out.rglob("result.json"))
    runs = [path for path in results if path.is_relative_to(out / "runs")]
    names = ["sat_soft", "sat_soft_joint", "sat_soft_sc", "stack", "stack_c2f", "updown"]
    assert [path.parent.relative_to(out) for path in runs] == [Path("runs", name, "0") for name in names]
    tried = {path.parts[-3] for path in set(results) - set(runs)}
    assert tried == {"sat_soft", "sat_soft_sc", "stack", "stack_sc", "updown"}

    def read_scores() -> list[dict[str, str]]:
        return list(csv.DictReader((tmp_path / "models-scores.csv").read_text(encoding="utf-8").splitlines()))

    scores = read_scores()
    differences = (tmp_path / "models-differences.csv").read_text(encoding="utf-8")
    assert {"updown, grid", "stack, then coarse-to-fine: stage 0 of 0 to 2"} <= {row["row"] for row in scores}
    assert '"stack, then coarse-to-fine","stack, stacked attention",test,CIDEr-D,' in differences

    written = {path: path.stat().st_mtime_ns for path in results}
    results[0].unlink()  # as if this run had been interrupted after its last epoch
    main(command)
    changed = [(one, other) for one, other in zip(scores, read_scores(), strict=True) if one != other]
    assert len(changed) == 2  # on both splits: what a resumed run took is not known
    assert all(one | {"minutes": ""} == other for one, other in changed)
    assert (tmp_path / "models-differences.csv").read_text(encoding="utf-8") == differences
    assert {path for path in results if path.stat().st_mtime_ns != written[path]} == {results[0]}

    assert main([*command, "--images", "60"]) == 2
    assert re.search(r"was begun with .*'images': 40.*, not with .*'images': 60", capsys.readouterr().err)


class Kept(Scenes):
    """Its results lie apart from its runs, and have one split, as those of photos do."""

    splits: ClassVar[tuple[str, ...]] = ("test",)

    @property
    def results(self) -> Path:
        return self.out.parent / "kept"


@pytest.mark.slow
def test_a_start_that_is_trained_again_leaves_its_kept_result_and_is_the_one_compared(tmp_path, capsys):
    def run(out: str, rows: str, *more: str) -> int:
        toy = [*TOY, "--out", str(tmp_path / out), "--results", str(tmp_path), "--rows", rows, *more]
        return command("", ROWS, pairs=[("updown_sc", "updown")], name="kept", bench_type=Kept, arguments=toy)

    assert run("one", "updown") == 0
    start, later = (tmp_path / "kept" / "runs" / name / "0" for name in ("updown", "updown_sc"))
    by_another_machine = dict.fromkeys(read_json(start / "test.json"), "a red circle")
    write_json(start / "test.json", by_another_machine)
    before = {file: file.read_bytes() for file in start.iterdir()}

    assert run("two", "updown_sc") == 2 and "updown_sc starts from updown; name that too" in capsys.readouterr().err
    assert run("two", "updown,updown_sc") == 0  # another machine
    assert {file: file.read_bytes() for file in start.iterdir()} == before
    assert read_json(later / "start.json") == read_json(tmp_path / "two/runs/updown/0/test.json")
    assert ',"updown, grid, trained again",test,' in (tmp_path / "kept-differences.csv").read_text(encoding="utf-8")
    result = read_json(later / "result.json")
    write_json(later / "result.json", result | {"origin": {"start_rate": 0.5}})  # as if its start had had another rate
    assert run("two", "updown,updown_sc") == 0
    assert read_json(later / "result.json")["origin"] == result["origin"]
    write_json(start.with_name("1") / "result.json", result | {"learning_rate": 0.5})
    assert run("two", "updown", "--summary-only", "--seeds", "2") == 2
    assert "mixes runs at the rates" in capsys.readouterr().err
