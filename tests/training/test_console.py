"""What a person sees while a model trains, in a log and on a terminal."""

import re

import torch

from showtell.training import train
from showtell.training.console import TrainingConsole


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
