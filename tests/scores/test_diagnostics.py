"""Rates over a set of captions, counted by hand."""

from __future__ import annotations

import math

import pytest

from showtell.errors import DataError
from showtell.scores import DocumentFrequency, diagnose, diversity
from showtell.scores.diagnostics import repeats_itself


def test_rates_by_hand() -> None:
    captions = ["A man on a", "a dog.", "a dog", "red red <unk> man", ""]
    rates = diagnose(captions, training=["A dog ."], vocabulary=["a", "man", "on", "dog", "red"])
    assert rates == pytest.approx(
        {
            "mean_length": (4 + 2 + 2 + 4 + 0) / 5,
            "vocabulary": 6,  # a man on dog red <unk>
            "distinct_1": 6 / 12,
            "distinct_2": 7 / 8,  # a-man man-on on-a | a-dog twice | red-red red-<unk> <unk>-man
            "bad_endings": 1 / 5,
            "repeats": 1 / 5,
            "unknown": 1 / 12,
            "identical": 2 / 5,
            "most_common": 2 / 5,
            "novelty": 3 / 5,
        }
    )


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a a", True),
        ("a man a man", True),
        ("in front of in front of it", True),
        ("one two three four one two three four", True),
        ("one two three four five one two three four five", False),  # five words on end
        ("a man and a dog and a cat", False),
        ("", False),
    ],
)
def test_repetition(caption: str, expected: bool) -> None:
    assert repeats_itself(caption.split()) is expected


def test_no_captions() -> None:
    with pytest.raises(DataError, match="There are no captions to diagnose"):
        diagnose([])


def test_diversity_of_equal_and_of_unlike_captions() -> None:
    frequency = DocumentFrequency({}, images=100, source="toy")
    same = diversity({"1": ["a dog runs far away"] * 3}, frequency)
    assert same == pytest.approx({"mbleu_4": 1, "distinct_1": 1 / 3, "distinct_2": 1 / 3, "self_cider": 0}, abs=1e-8)
    unlike = diversity({"1": ["a dog runs far", "two red cats sit"]}, frequency)
    # no common n-gram: the vectors are at right angles, both singular values are 1
    assert unlike["self_cider"] == pytest.approx(-math.log(1 / 2) / math.log(2))
    assert unlike["mbleu_4"] == pytest.approx(0, abs=1e-6)
    assert unlike["distinct_1"] == 1


def test_diversity_needs_sets_of_one_size() -> None:
    with pytest.raises(DataError, match=r"equally many for each image, not of \[2, 3\]"):
        diversity({"1": ["a", "b"], "2": ["a", "b", "c"]})
