"""Bootstrap: intervals and p-values against closed forms; every pair of systems, Holm's correction by hand."""

from dataclasses import fields

import numpy as np
import pandas
import pytest

import showtell
from showtell.errors import DataError
from showtell.scores import compare
from showtell.scores.bootstrap import Comparison, drawn_counts, holm


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    rng = np.random.default_rng(1)
    captions = ["a b c d" if hit else "e f g h" for hit in rng.random(400) < 0.3]
    report = showtell.score(captions, [["a b c d"]] * 400, metrics=["rouge_l"])
    mean = report.scores["rouge_l"]
    half = 1.96 * np.sqrt(mean * (1 - mean) / 400)
    interval = report.intervals(samples=4000)["rouge_l"]
    # the standard error of a 2.5% quantile of 4,000 draws is about 0.003 here
    assert interval.low == pytest.approx(mean - half, abs=0.012)
    assert interval.high == pytest.approx(mean + half, abs=0.012)


def test_draws_are_the_same_for_the_same_seed_whatever_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(drawn_counts(50, 20, seed=3)))
    assert whole.shape == (20, 50) and (whole.sum(axis=1) == 50).all()
    monkeypatch.setattr("showtell.scores.bootstrap._COUNTS_AT_ONCE", 150)
    np.testing.assert_array_equal(np.concatenate(list(drawn_counts(50, 20, seed=3))), whole)


def test_a_difference_on_every_image_is_not_chance_and_a_coin_is() -> None:
    def difference_of(*systems: list[str], samples: int = 1000) -> Comparison:
        reports = (showtell.score(texts, [["a b c d"]] * len(texts), metrics=["rouge_l"]) for texts in systems)
        (row,) = compare(dict(zip(("first", "second"), reports, strict=True)), samples=samples)["rouge_l"]
        return row

    row = difference_of(["a b c d"] * 100, ["a b x y"] * 100, samples=999)
    assert row.value == pytest.approx(0.5)
    assert row.p == pytest.approx(1 / 1000)  # no draw, and the one that is added
    assert difference_of(["a b c d"] * 2, ["a b x y"] * 2).p == 0.5  # two coins that fall alike
    assert difference_of(["a b c d", "x"] * 50, ["x", "a b c d"] * 50).p == 1.0


def test_systems_on_different_images_are_not_compared() -> None:
    one = showtell.score({"1": "a"}, {"1": ["a"]}, metrics=["bleu"])
    other = showtell.score({"2": "a"}, {"2": ["a"]}, metrics=["bleu"])
    with pytest.raises(DataError, match="not all have 1, 2"):
        compare({"one": one, "other": other})
    two_references = showtell.score({"1": "a"}, {"1": ["a", "b"]}, metrics=["bleu"])
    with pytest.raises(DataError, match="The bleu_1 scores of the systems are made differently: nrefs:1"):
        compare({"one": one, "other": two_references})


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])  # 4, 3, 2 and 1 times, never falling
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_every_pair_is_compared_and_corrected() -> None:
    reports = {}
    for seed, (name, share) in enumerate([("a", 0.9), ("b", 0.85), ("c", 0.2)]):  # of right captions, 1 each
        captions = ["a b c d" if hit else "e f g h" for hit in np.random.default_rng(seed).random(200) < share]
        reports[name] = showtell.score(captions, [["a b c d"]] * 200, ["rouge_l"])
    table = compare(reports, samples=999)
    comparisons = {(row.first, row.second): row for row in table}
    assert list(pandas.DataFrame(table).columns) == [field.name for field in fields(Comparison)]
    assert pandas.DataFrame(table).p_holm.tolist() == [row.p_holm for row in table["rouge_l"]] and len(table) == 3
    for row in table:  # each is a line of what is printed, with its interval
        assert f"{row.first} - {row.second}  {row.value:+.4f}  [{row.low:+.4f}, {row.high:+.4f}]" in repr(table)
    assert list(comparisons) == [("a", "b"), ("a", "c"), ("b", "c")]
    values = {name: report.scores["rouge_l"] or 0 for name, report in reports.items()}
    for (first, second), one in comparisons.items():
        assert one.value == pytest.approx(values[first] - values[second])
        assert one.p_holm >= one.p
    assert comparisons["a", "c"].p == 1 / 1000
    assert comparisons["a", "c"].p_holm == 3 / 1000
    assert comparisons["a", "b"].p_holm == comparisons["a", "b"].p  # the largest is multiplied by one
