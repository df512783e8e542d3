"""A run that is killed with SIGKILL, at any moment, and resumed ends with the bits of one that never was."""

import copy
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from showtell.training import train
from tests.captioners.tiny_transformers import build
from tests.training import process_group
from tests.training.test_loop import fingerprints, log_of


def run(recipe: dict[str, Any], folder: Path, last_operation: int | None = None) -> None:
    """Train; before a certain operation on the files of the run, such as the renaming of a folder, the process dies."""
    operations = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal operations
        if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove") and str(folder) in str(arguments[0]):
            operations += 1
            if operations == last_operation:
                os.kill(os.getpid(), signal.SIGKILL)

    if last_operation is not None:
        sys.addaudithook(count)
    train(recipe, folder, resume=True)


def recipe_of(name: str, tiny_recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Of two or three epochs of 7 steps."""
    recipe = copy.deepcopy(tiny_recipe)
    recipe["training"] |= {"epochs": 2, "save_every": 2}
    if name == "cross_entropy":
        return recipe
    if name == "adapted":
        del recipe["encoder"], recipe["model"], recipe["decoding"]
        recipe["data"]["workers"] = 0  # its photos are not kept in memory, and these processes fork none
        base = folder / "blip" if (folder / "blip").exists() else build("blip", folder / "blip")
        recipe["training"] |= {"start_from": str(base)}
        recipe["objective"] = {"name": "cross_entropy"}  # the other terms are for decoders of ours
        return recipe
    start = copy.deepcopy(tiny_recipe)
    start["training"] |= {"epochs": 12, "learning_rate": 0.01}
    if name == "adversarial":
        start["model"] = recipe["model"] = {
            "name": "hacap", "embedding_size": 16, "hidden_size": 24, "attention_size": 16, "goal_size": 4,
        }  # fmt: skip
        start["objective"] = {"name": "adversarial_pretraining"}
        recipe["objective"] = {"name": "adversarial", "samples": 2, "rollouts": 1}
        recipe["training"] |= {"batch_size": 4, "gradient_accumulation": 2}
    else:
        recipe["objective"] = {"name": "self_critical", "samples": 2}
    if not (folder / "start").exists():
        undisturbed(1, start, folder / "start")
    recipe["training"] |= {"start_from": str(folder / "start" / "best"), "epochs": 3, "learning_rate": 0.05}
    return recipe


def undisturbed(processes: int, recipe: dict[str, Any], run_folder: Path) -> float:
    """The seconds that a run takes."""
    began = time.monotonic()
    output = run_folder.with_name(f"{run_folder.name}.txt")
    statuses = process_group.end(process_group.start(processes, output, run, recipe, run_folder))
    assert statuses == [0] * processes, output.read_text()[-3000:]
    return time.monotonic() - began


def killed(
    processes: int, recipe: dict[str, Any], folder: Path, output: Path, *, victims: list[int],
    when: Callable[[], bool] | None = None, last_operation: int | None = None,
) -> bool:  # fmt: skip
    """Start or resume, and kill; as a launcher does, end the others when one is gone. False if the run ended first."""
    started = process_group.start(processes, output, run, recipe, folder, last_operation)
    while all(process.is_alive() for process in started) and not (when is not None and when()):
        time.sleep(0.002)
    if when is not None:
        for victim in victims:
            started[victim].kill()
            started[victim].join(30)  # a busy machine may be slow to tell that it is gone
    time.sleep(0.1)  # how often torchrun looks
    if any(process.exitcode for process in started):
        for process in started:
            process.terminate()
    statuses = process_group.end(started, 30)
    others = [status for number, status in enumerate(statuses) if number not in victims]
    if not any(statuses) or (others and not any(others)):
        return False
    assert -signal.SIGKILL in statuses, output.read_text()[-3000:]
    return True


def lines_are(folder: Path, count: int) -> Callable[[], bool]:
    log = folder / "log.jsonl"
    return lambda: log.exists() and log.read_bytes().count(b"\n") >= count


def test_two_processes_that_are_killed_end_with_the_same_bits(tiny_recipe, tmp_path):
    """SIGKILL to the second in the first epoch, then to both in the second, and to the first within a checkpoint."""
    recipe = recipe_of("cross_entropy", tiny_recipe, tmp_path)
    whole, broken, output = tmp_path / "whole", tmp_path / "broken", tmp_path / "output"
    undisturbed(2, recipe, whole)

    def both_killed() -> bool:
        shutil.rmtree(broken, ignore_errors=True)
        output.unlink(missing_ok=True)
        return killed(2, recipe, broken, output, victims=[1], when=lines_are(broken, 4)) and killed(
            2, recipe, broken, output, victims=[0, 1], when=lines_are(broken, 11)
        )

    assert any(both_killed() for _ in range(5))  # a busy machine may let the run come to its end first
    assert process_group.end(process_group.start(2, output, run, recipe, broken)) == [0, 0]
    assert output.read_text().count("resuming at step") == 2
    assert fingerprints(broken) == fingerprints(whole)


@pytest.mark.slow
def test_a_run_may_resume_with_another_number_of_processes(tiny_recipe, tmp_path):
    """Two are killed, four resume and are killed, one comes to the end: the losses of one alone, but for rounding."""
    recipe = recipe_of("cross_entropy", tiny_recipe, tmp_path)
    recipe["encoder"]["norm"] = "none"
    recipe["training"] |= {"learning_rate": 0.05, "optimizer": {"name": "sgd", "momentum": 0.0}}
    whole, broken, output = tmp_path / "whole", tmp_path / "broken", tmp_path / "output"
    undisturbed(1, recipe, whole)
    assert killed(2, recipe, broken, output, victims=[1], when=lines_are(broken, 4))
    assert killed(4, recipe, broken, output, victims=[3], when=lines_are(broken, 8))
    assert process_group.end(process_group.start(1, output, run, recipe, broken)) == [0]
    assert output.read_text().count("resuming at step") == 2
    for expected, actual in zip(log_of(whole), log_of(broken), strict=True):
        if "loss" in expected:
            assert actual == pytest.approx(expected, rel=1e-3)
        else:
            assert actual["validation"] == pytest.approx(expected["validation"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "processes", "times"),
    [
        ("cross_entropy", 1, 8), ("cross_entropy", 2, 8), ("self_critical", 1, 8), ("self_critical", 2, 8),
        ("cross_entropy", 4, 3),  # from three on it matters in which order numbers are added
        ("adapted", 1, 6), ("adversarial", 1, 3), ("adversarial", 2, 3),
    ],
)  # fmt: skip
def test_killed_at_random_moments_it_ends_with_the_same_bits(name, processes, times, tiny_recipe, tmp_path):
    """By the clock, one process or all, and before random operations on files, which are those of checkpoints."""
    recipe = recipe_of(name, tiny_recipe, tmp_path)
    whole, output = tmp_path / "whole", tmp_path / "output"
    seconds = undisturbed(processes, recipe, whole)
    moments, kills, runs, outputs = random.Random(f"{name} {processes}"), 0, 1, ""
    while kills < times:
        broken = tmp_path / f"broken{runs}"
        if kills % 2:
            deadline = time.monotonic() + moments.uniform(0, seconds)
            victims = [moments.randrange(processes)] if moments.random() < 0.5 else list(range(processes))
            was_killed = killed(
                processes, recipe, broken, output, victims=victims, when=lambda end=deadline: time.monotonic() > end
            )
        else:
            was_killed = killed(processes, recipe, broken, output, victims=[], last_operation=moments.randrange(1, 250))
        kills, outputs = kills + was_killed, outputs + output.read_text()
        if not was_killed:  # it came to its end before
            assert fingerprints(broken) == fingerprints(whole)
            runs += 1
    broken = tmp_path / f"broken{runs}"
    undisturbed(processes, recipe, broken)
    assert fingerprints(broken) == fingerprints(whole)
    assert "resuming at step" in outputs + broken.with_suffix(".txt").read_text()
