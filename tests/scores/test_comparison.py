"""Several systems: every pair, Holm's correction by hand, and power against a simulation."""

from __future__ import annotations

import numpy as np
import pytest

import showtell
from showtell.scores.bootstrap import POINT, compare_all, holm
from showtell.scores.report import ScoreReport

RIGHT, WRONG = "a b c d", "e f g h"


def coin_report(share: float, images: int, seed: int) -> ScoreReport:
    """ROUGE-L of captions that are right with some probability: 1 or 0 for each image."""
    hits = np.random.default_rng(seed).random(images) < share
    return showtell.score([RIGHT if hit else WRONG for hit in hits], [[RIGHT]] * images, ["rouge_l"])


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03, 0.5]) == pytest.approx([0.09, 0.04, 0.09, 0.5])  # 4, 3, 2 and 1 times, never falling
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_every_pair_is_compared_and_corrected() -> None:
    reports = {
        name: coin_report(share, 200, seed) for seed, (name, share) in enumerate([("a", 0.9), ("b", 0.85), ("c", 0.2)])
    }
    comparisons = {(one.first, one.second): one for one in compare_all(reports, samples=999)}
    assert list(comparisons) == [("a", "b"), ("a", "c"), ("b", "c")]
    values = {name: report.scores["rouge_l"] or 0 for name, report in reports.items()}
    for (first, second), one in comparisons.items():
        assert one.difference.value == pytest.approx(values[first] - values[second])
        assert one.p_holm >= one.difference.p
    assert comparisons["a", "c"].difference.p == 1 / 1000
    assert comparisons["a", "c"].p_holm == 3 / 1000
    assert comparisons["a", "b"].p_holm == comparisons["a", "b"].difference.p  # the largest is multiplied by one


def test_images_for_a_difference_are_those_of_the_closed_form() -> None:
    one = compare_all({"a": coin_report(0.5, 400, 1), "b": coin_report(0.5, 400, 2)}, samples=4000)[0]
    # the differences of independent coins have a variance of 1/2; (1.96 + 0.84)^2 / 2 / 0.01^2 images
    assert one.images_for(POINT) == pytest.approx(39_244, rel=0.1)
    assert one.detectable == pytest.approx(2.8016 * np.sqrt(0.5 / 400), rel=0.05)
    assert one.images_for(one.detectable) in (400, 401)


def test_the_stated_power_is_that_of_a_simulation() -> None:
    """With as many images as are said to be needed, four of five repetitions see the difference."""
    needed = compare_all({"a": coin_report(0.6, 500, 1), "b": coin_report(0.4, 500, 2)})[0].images_for(0.2)
    seen = 0
    for seed in range(150):
        pair = {"a": coin_report(0.6, needed, 10 + 2 * seed), "b": coin_report(0.4, needed, 11 + 2 * seed)}
        seen += compare_all(pair, samples=200)[0].difference.p < 0.05
    assert 0.7 < seen / 150 < 0.9  # three standard errors about 0.8


def test_equal_systems_need_no_images() -> None:
    report = coin_report(0.5, 50, 1)
    (one,) = compare_all({"a": report, "b": report}, samples=100)
    assert (one.difference.value, one.p_holm, one.images_for(), one.detectable) == (0, 1, 0, 0)
