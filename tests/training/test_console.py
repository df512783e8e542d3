"""What a person sees while a model trains, in a log and on a terminal."""

import re

import torch

from showtell.captions import Caption
from showtell.features.small_cnn import SmallCnnConfig
from showtell.features.timm_grid import TimmConfig
from showtell.training import train
from showtell.training.console import TrainingConsole
from showtell.training.health import few_photos, runs_in_circles, warnings


def test_a_log_has_threads_steps_and_validations(capsys, monkeypatch, tiny_recipe, tmp_path):
    monkeypatch.setattr("showtell.progress.SECONDS", 0.005)
    tiny_recipe["training"]["epochs"] = 1
    train(tiny_recipe, tmp_path / "run")
    lines = capsys.readouterr().err.splitlines()
    first = next(line for line in lines if "weights to train" in line)
    assert lines[lines.index(first) + 1].startswith("warning: 50 photos are too few to learn from scratch")
    assert re.search(rf" steps on \w+, {torch.get_num_threads()} threads? \(\d+ cores?\)$", first)
    steps = [line for line in lines if line.startswith("showtell: training: ")]
    assert any(
        re.search(r" of \d+, epoch 1, loss \d+\.\d{3}, \d+ captions/s, 0:\d\d:\d\d left$", line) for line in steps
    )
    assert any(line.startswith("showtell: validating: ") for line in lines)


def test_the_bar_says_what_is_left_and_fits(capsys, monkeypatch):
    width = 60  # without room for the speed
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width), "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    console = TrainingConsole()
    with console.bar:
        console.begin(320, 0)
        for step in range(1, 4):
            console.step(step, 1, 2.5, 81.4)
        with console.counting("validating", 8) as progress:
            progress(3)
            console.bar.refresh()
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).replace("\r", "\n").splitlines()
    assert max(len(frame.rstrip()) for frame in frames) <= width
    assert any(re.match(r"validating .*3/8", frame) for frame in frames)
    bar = next(frame for frame in reversed(frames) if "3/320" in frame)
    assert "loss 2.500" in bar and re.search(r" (--|\d?\d):(--|\d\d) ", bar)
    assert "81 captions/s" not in bar


def caption(text: str, finished: bool = True) -> Caption:
    return Caption(text, 0.0, finished, ())


def test_captions_that_are_the_same_or_without_end_are_named():
    same = {str(number): caption("a dog" if number < 6 else f"caption {number}") for number in range(10)}
    circling = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    good = {str(number): caption(f"a dog with {number} bones") for number in range(10)}
    for captions, begins in (
        (same, '6 of 10 images have the same caption ("a dog"): the model does not look at the picture'),
        (circling, '10 of 10 captions repeat themselves without end (such as "0 and and and and")'),
    ):
        (plain,), (rewarded,) = warnings(captions), warnings(captions, rewarded=True)
        assert plain.startswith(begins) and "train longer" in plain
        assert "train longer" not in rewarded and "lower the learning rate, or begin from" in rewarded
    assert warnings(good) == warnings({}) == []
    for text, finished, expected in (
        ("a dog and a dog and a dog and a dog and", False, True),
        ("a red red red", False, True),
        ("a red red red", True, False),  # it ended by itself
        ("a dog runs on the green grass", False, False),
        ("", False, False),
    ):
        assert runs_in_circles(caption(text, finished)) is expected, text


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
