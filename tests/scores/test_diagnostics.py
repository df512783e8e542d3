"""Rates over a set of captions, counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.errors import DataError
from showtell.scores import diagnose, score
from showtell.scores.diagnostics import rate_warnings
from showtell.text.endings import is_degenerate, repeats_itself


def test_rates_by_hand() -> None:
    captions = ["A man on a", "a dog.", "a dog", "red red <unk> man", ""]
    rates = diagnose(captions, training=["A dog ."])
    expected = {
        "mean_length": (4 + 2 + 2 + 4 + 0) / 5,
        "vocabulary": 6,  # a man on dog red <unk>
        "distinct_1": 6 / 12,
        "distinct_2": 7 / 8,  # a-man man-on on-a | a-dog twice | red-red red-<unk> <unk>-man
        "bad_endings": 1 / 5, "repeats": 1 / 5, "unknown": 1 / 12, "identical": 2 / 5, "most_common": 2 / 5,
        "novelty": 3 / 5,
    }  # fmt: skip
    assert rates == pytest.approx(expected)
    starts = ["20% of captions end in a word such a", '20% of captions repeat themselves ("']
    assert [line[:36] for line in rate_warnings(rates)] == starts
    assert rate_warnings(diagnose(["a dog", "a cat", "a cow on grass"])) == []
    with pytest.raises(DataError, match="There are no captions to diagnose"):
        diagnose([])


REPEATED = ["a a", "a man a man", "in front of in front of it", "one two three four one two three four"]
NOT_REPEATED = ["one two three four five one two three four five", "a man and a dog and a cat", ""]


def test_repetition() -> None:
    assert [caption for caption in [*REPEATED, *NOT_REPEATED] if repeats_itself(caption.split())] == REPEATED


def test_captions_without_spaces_are_told():
    """Chinese whose words are parted is scored without a word."""
    unspaced, spaced = ("一个人在骑自行车", "一个男人在骑自行车"), ("一个 人 在 骑车", "一个 男人 在 骑车")
    for (own, reference), is_told in ((unspaced, True), (spaced, False)):
        warnings = score({"1": own}, {"1": [reference]}, ["bleu"]).warnings
        assert any("without spaces between words" in warning for warning in warnings) is is_told


@given(
    phrase=st.lists(st.text("abcdeföß", min_size=1, max_size=6), min_size=1, max_size=12),
    times=st.integers(3, 6),
    mark=st.sampled_from(["", ",", "."]),
)
def test_a_phrase_three_times_in_a_row_is_degenerate(phrase: list[str], times: int, mark: str) -> None:
    said = " ".join(phrase) + f"{mark} "
    assert is_degenerate(f"There is {said * (times - 1)}{said.upper()}at last.")


def test_what_is_degenerate_without_spaces_and_what_is_not() -> None:
    assert all(map(is_degenerate, ["一只狗一只狗一只狗", "a dog!!!!!!!", "aaaaaaaaaa", "hahahahahaha"]))
    usual = ["", "0", "1,000,000 people", "a dog and a cat and a dog", "狗狗和猫", "Very, very good ...", "no no, a no"]
    assert not any(map(is_degenerate, usual))
