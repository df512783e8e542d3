from __future__ import annotations

from pathlib import Path

import pytest

from real_photos import COLUMNS, PAIRS, READS, ROWS, Photos, tables, told_apart
from showtell.datasets import open_dataset
from showtell.scores import SCORES
from showtell.training import make_recipe

BY_NAME = {row.name: row for row in ROWS}


def test_every_row_is_a_valid_recipe_of_equal_effort(tmp_path):
    bench = Photos(tmp_path, photos=Path("photos"))
    for row in ROWS:
        recipe = make_recipe(bench.recipe(row, seed=2, rate=0.009))
        assert (recipe.training.seed, recipe.training.learning_rate) == (2, 0.009), row
        assert recipe.data.path == "photos" and not recipe.encoder.trained, row
        assert (recipe.training.epochs, recipe.training.batch_size) == (8 if row.start is None else 6, 16), row
        begins = recipe.training.start_from
        assert begins == (None if row.start is None else str(tmp_path / "runs" / row.start / "2" / "best")), row
        if row.start is not None:  # or its weights could not be loaded
            assert recipe.model == make_recipe(bench.recipe(BY_NAME[row.start], seed=2)).model, row
        assert make_recipe(bench.trial(row, 0.001)).training.epochs == 2, row
    assert {name for pair in PAIRS for name in pair} <= set(BY_NAME)
    assert all(row.tried_by is None or row.tried_by in BY_NAME for row in ROWS)


def test_a_machine_is_told_from_people_by_its_words():
    people = {str(n): f"{animal} number {n} is resting" for n, animal in enumerate(["dog", "cat"] * 20)}
    assert told_apart(dict.fromkeys(people, "a dog runs"), people) == 1.0
    assert told_apart(people, people) == pytest.approx(0.5)  # the same text is called the same


def test_a_summary_says_how_captions_read(tiny_scenes, tmp_path):
    records = open_dataset(tiny_scenes).split("test")
    captions = {record.image_id: "a red circle" for record in records}
    (reads,) = Photos(tmp_path, photos=tiny_scenes).describe([captions], "test").values()
    assert reads["identical"]["mean"] == 1.0 and reads["mean_length"]["mean"] == 3.0 and set(reads) == set(READS)


def test_tables_say_what_the_summary_says():
    number = {"mean": 0.25, "spread": 0.0125}
    assert set(COLUMNS) <= {computed.name for metric in Photos.metrics for computed in SCORES[metric].numbers}
    scores = dict.fromkeys(COLUMNS, number)
    difference = {"value": 0.1, "low": 0.05, "high": 0.15, "p": 0.01}
    line = {
        "name": "sat_soft", "says": "soft attention", "seeds": [0, 1], "learning_rate": 0.001, "weights": 4_000_000,
        "cpu_seconds": {"mean": 600.0, "spread": None}, "scores": {"test": scores},
        "reads": {"test": dict.fromkeys(READS, number)}, "stages": {},
        "pairs": {"nic_gru": {"test": {"cider": difference, "meteor": difference}}},
    }  # fmt: skip
    other = line | {"name": "nic_gru", "says": "GRU", "pairs": {}}
    written = tables([line, other])
    assert "| soft attention | " + "25.0 ± 1.2 | " * 8 + "2 | 10 |" in written
    row = "| 67 | 44.8 | 29.9 | 19.5 | – | 18.93 | – | – |  |  |"
    assert f"| flickr8k/sat_soft_xu2015, as published in Xu et al. 2015, Table 1 {row}" in written
    assert "| soft attention | GRU | +0.100 [+0.050, +0.150], p 0.010 |" in written
    assert "| soft attention | 0.001 | 4.0 |" in written
