from __future__ import annotations

import pytest

from showtell.captions import Caption
from showtell.training.health import runs_in_circles, warnings


def caption(text: str, finished: bool = True) -> Caption:
    return Caption(text, 0.0, finished, ())


@pytest.mark.parametrize(
    ("text", "finished", "expected"),
    [
        ("a dog and a dog and a dog and a dog and", False, True),
        ("a red red red", False, True),
        ("a red red red", True, False),  # it ended by itself
        ("a dog runs on the green grass", False, False),
        ("a dog", False, False),
        ("", False, False),
    ],
)
def test_running_in_circles(text, finished, expected):
    assert runs_in_circles(caption(text, finished)) is expected


def test_one_caption_for_most_images_is_named_with_its_count():
    captions = {str(number): caption("a dog" if number < 6 else f"caption {number}") for number in range(10)}
    (sentence,) = warnings(captions)
    assert sentence.startswith('6 of 10 images have the same caption ("a dog"): the model does not look at the picture')


def test_endless_repetition_is_named_with_an_example():
    captions = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    (sentence,) = warnings(captions)
    assert sentence.startswith('10 of 10 captions repeat themselves without end (such as "0 and and and and")')


def test_under_a_reward_nobody_is_told_to_train_longer():
    """The reward watchdog calls the same captions harm."""
    same = {str(number): caption("a dog") for number in range(10)}
    circling = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    for captions in (same, circling):
        (plain,), (rewarded,) = warnings(captions), warnings(captions, rewarded=True)
        assert "train longer" in plain
        assert "train longer" not in rewarded and "lower the learning rate, or begin from" in rewarded


def test_good_captions_are_left_alone():
    assert warnings({str(number): caption(f"a dog with {number} bones") for number in range(10)}) == []
    assert warnings({}) == []
