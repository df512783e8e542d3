from __future__ import annotations

from showtell.captions import Caption
from showtell.features.small_cnn import SmallCnnConfig
from showtell.features.timm_grid import TimmConfig
from showtell.training import train
from showtell.training.health import few_photos, runs_in_circles, warnings


def caption(text: str, finished: bool = True) -> Caption:
    return Caption(text, 0.0, finished, ())


def test_running_in_circles():
    for text, finished, expected in (
        ("a dog and a dog and a dog and a dog and", False, True),
        ("a red red red", False, True),
        ("a red red red", True, False),  # it ended by itself
        ("a dog runs on the green grass", False, False),
        ("", False, False),
    ):
        assert runs_in_circles(caption(text, finished)) is expected, text


def test_captions_that_are_the_same_or_without_end_are_named_and_good_ones_are_left_alone():
    same = {str(number): caption("a dog" if number < 6 else f"caption {number}") for number in range(10)}
    (sentence,) = warnings(same)
    assert sentence.startswith('6 of 10 images have the same caption ("a dog"): the model does not look at the picture')
    circling = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    (sentence,) = warnings(circling)
    assert sentence.startswith('10 of 10 captions repeat themselves without end (such as "0 and and and and")')
    assert warnings({str(number): caption(f"a dog with {number} bones") for number in range(10)}) == warnings({}) == []


def test_under_a_reward_nobody_is_told_to_train_longer():
    """The reward watchdog calls the same captions harm."""
    same = {str(number): caption("a dog") for number in range(10)}
    circling = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    for captions in (same, circling):
        (plain,), (rewarded,) = warnings(captions), warnings(captions, rewarded=True)
        assert "train longer" in plain
        assert "train longer" not in rewarded and "lower the learning rate, or begin from" in rewarded


def test_few_photos_are_told_with_what_to_do_instead():
    pretrained = TimmConfig(name="resnet50", trained=False)
    for images, encoder, begins in (
        (999, SmallCnnConfig(), "too few to learn from scratch (100 drawn shapes taught half of what 1,000 did"),
        (1000, SmallCnnConfig(), ""),
        (999, TimmConfig(name="resnet50", weights="random"), "too few to learn from scratch"),
        (299, pretrained, "few, even for a pretrained encoder: expect frequent captions"),
        (300, pretrained, ""),
    ):
        sentence = few_photos(images, encoder) or ""
        assert sentence.startswith(begins) and bool(sentence) == bool(begins)
        assert ("start from a checkpoint (training.start_from)" in sentence) == bool(begins)
        assert ("folder/sat_soft_pretrained" in sentence) == begins.startswith("too few")


def test_a_run_on_few_photos_says_so_before_it_trains(tiny_recipe, tmp_path, capsys):
    tiny_recipe["training"]["epochs"] = 1
    first = train(tiny_recipe, tmp_path / "run").folder
    lines = capsys.readouterr().err.splitlines()
    warning = next(index for index, line in enumerate(lines) if "warning: 50 photos are too few to learn from" in line)
    assert warning < next(index for index, line in enumerate(lines) if "epoch 1/1" in line)
    tiny_recipe["training"]["start_from"] = str(first / "best")
    train(tiny_recipe, tmp_path / "more")
    assert "too few to learn" not in capsys.readouterr().err
