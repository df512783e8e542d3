"""Bootstrap: intervals and p-values against closed forms, and on scores that are no means."""

from __future__ import annotations

import numpy as np
import pytest

import showtell
from showtell.errors import DataError
from showtell.scores import compare, intervals
from showtell.scores.bootstrap import drawn_counts


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    rng = np.random.default_rng(1)
    captions = ["a b c d" if hit else "e f g h" for hit in rng.random(400) < 0.3]
    report = showtell.score(captions, [["a b c d"]] * 400, metrics=["rouge_l"])
    mean = report.scores["rouge_l"]
    assert mean is not None
    half = 1.96 * np.sqrt(mean * (1 - mean) / 400)
    interval = intervals(report, samples=4000)["rouge_l"]
    # 4,000 draws: the standard error of a 2.5% quantile is about 0.003 here
    assert interval.low == pytest.approx(mean - half, abs=0.012)
    assert interval.high == pytest.approx(mean + half, abs=0.012)


def test_every_number_has_an_interval_around_it() -> None:
    captions = ["a dog runs home", "a cat sits on a mat", "two men play ball", "x"] * 30
    references = [["a dog runs away", "the dog runs"], ["a cat on a mat"], ["two men in a park"], ["a y"]] * 30
    report = showtell.score(captions, references, metrics=["bleu", "rouge_l", "cider"])
    bounds = intervals(report)
    assert list(bounds) == list(report.scores)
    for name, interval in bounds.items():
        value = report.scores[name]
        assert value is not None
        assert interval.low <= value <= interval.high
        assert interval.low < interval.high


def test_draws_are_the_same_for_the_same_seed_whatever_their_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(drawn_counts(50, 20, seed=3)))
    assert whole.shape == (20, 50)
    assert (whole.sum(axis=1) == 50).all()
    monkeypatch.setattr("showtell.scores.bootstrap._COUNTS_AT_ONCE", 150)
    np.testing.assert_array_equal(np.concatenate(list(drawn_counts(50, 20, seed=3))), whole)


def test_a_system_does_not_differ_from_itself() -> None:
    captions = ["a dog runs", "a cat", "x y z"] * 20
    report = showtell.score(captions, [["a dog"], ["a cat"], ["x"]] * 20, metrics=["bleu", "cider"])
    for difference in compare(report, report).values():
        assert (difference.value, difference.low, difference.high, difference.p) == (0, 0, 0, 1)


def test_a_difference_on_every_image_is_not_chance_and_a_coin_is() -> None:
    references = [["a b c d"]] * 100
    good = showtell.score(["a b c d"] * 100, references, metrics=["rouge_l"])
    bad = showtell.score(["a b x y"] * 100, references, metrics=["rouge_l"])
    difference = compare(good, bad, samples=999)["rouge_l"]
    assert difference.value == pytest.approx(0.5)
    assert difference.p == pytest.approx(1 / 1000)  # no draw, and the one that is added
    heads = showtell.score(["a b c d", "x"] * 50, references, metrics=["rouge_l"])
    tails = showtell.score(["x", "a b c d"] * 50, references, metrics=["rouge_l"])
    assert compare(heads, tails)["rouge_l"].p == 1.0


def test_systems_on_different_images_are_not_compared() -> None:
    one = showtell.score({"1": "a"}, {"1": ["a"]}, metrics=["bleu"])
    other = showtell.score({"2": "a"}, {"2": ["a"]}, metrics=["bleu"])
    with pytest.raises(DataError, match="only one has 1, 2"):
        compare(one, other)
    two_references = showtell.score({"1": "a"}, {"1": ["a", "b"]}, metrics=["bleu"])
    with pytest.raises(DataError, match="The two bleu scores are made differently: nrefs:1"):
        compare(one, two_references)
