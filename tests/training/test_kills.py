"""A run that is killed with SIGKILL, at any moment, and resumed ends with the bits of one that never was."""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from showtell.training import train
from tests.training import together
from tests.training.test_loop import fingerprints

STEPS = 14  # 50 images in batches of 8, twice
KILLS = 8  # of each kind of run, in make test-slow


def run(recipe: dict[str, Any], folder: Path, last_operation: int | None = None) -> None:
    """Train; before a certain operation on the files of the run, such as the renaming of a folder, the process dies."""
    seen = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove") and str(folder) in str(arguments[0]):
            seen += 1
            if seen == last_operation:
                os.kill(os.getpid(), signal.SIGKILL)

    if last_operation is not None:
        sys.addaudithook(count)
    train(recipe, folder, resume=True)


def recipes(tiny_recipe: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Of cross-entropy, and of self-critical training that starts from a run of it."""
    likelihood = copy.deepcopy(tiny_recipe)
    likelihood["training"] |= {"epochs": 2, "save_every": 2}
    reward = copy.deepcopy(likelihood)
    reward["objective"] = {"name": "self_critical", "samples": 2}
    reward["training"] |= {"start_from": str(folder / "start" / "best"), "learning_rate": 0.01}
    reward["training"]["pilot"] = {"least_cider": 0, "patience": 1, "tolerance": 0.0}
    return {"cross_entropy": likelihood, "self_critical": reward}


def undisturbed(processes: int, recipe: dict[str, Any], run_folder: Path) -> float:
    """The seconds that a run takes."""
    began = time.monotonic()
    said = run_folder.with_name(f"{run_folder.name}.txt")
    statuses = together.end(together.start(processes, said, run, recipe, run_folder))
    assert statuses == [0] * processes, said.read_text()[-3000:]
    return time.monotonic() - began


def killed(
    processes: int, recipe: dict[str, Any], folder: Path, said: Path, *, victims: list[int],
    when: Callable[[], bool] | None = None, last_operation: int | None = None,
) -> bool:  # fmt: skip
    """Start or go on, and kill; as a launcher does, end the others when one is gone. False if the run was faster."""
    started = together.start(processes, said, run, recipe, folder, last_operation)
    while all(process.is_alive() for process in started) and not (when is not None and when()):
        time.sleep(0.002)
    if when is not None:
        for victim in victims:
            started[victim].kill()
    time.sleep(0.1)  # how often torchrun looks
    if any(process.exitcode for process in started):
        for process in started:
            process.terminate()
    statuses = together.end(started, 30)
    if statuses == [0] * processes:
        return False
    assert -signal.SIGKILL in statuses, said.read_text()[-3000:]
    return True


def lines_are(folder: Path, count: int) -> Callable[[], bool]:
    log = folder / "log.jsonl"
    return lambda: log.exists() and log.read_bytes().count(b"\n") >= count


def test_two_processes_that_are_killed_end_with_the_same_bits(tiny_recipe, tmp_path):
    """SIGKILL to the second in the first epoch, then to both in the second, and to the first within a checkpoint."""
    recipe = recipes(tiny_recipe, tmp_path)["cross_entropy"]
    whole, broken, said = tmp_path / "whole", tmp_path / "broken", tmp_path / "said"
    undisturbed(2, recipe, whole)
    assert killed(2, recipe, broken, said, victims=[1], when=lines_are(broken, 4))
    assert "Another process of this run was lost or no longer answers" in said.read_text()
    assert killed(2, recipe, broken, said, victims=[0, 1], when=lines_are(broken, 11))
    assert together.end(together.start(2, said, run, recipe, broken)) == [0, 0]
    assert said.read_text().count("going on at step") == 2
    assert fingerprints(broken) == fingerprints(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cross_entropy", "self_critical"])
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_at_random_moments_it_ends_with_the_same_bits(name, processes, tiny_recipe, tmp_path):
    """By the clock, one process or all, and before random operations on files, which are those of checkpoints."""
    recipe = recipes(tiny_recipe, tmp_path)[name]
    if name == "self_critical":
        undisturbed(1, recipes(tiny_recipe, tmp_path)["cross_entropy"], tmp_path / "start")
    whole, said = tmp_path / "whole", tmp_path / "said"
    undisturbed(processes, recipe, tmp_path / "warm")
    seconds = undisturbed(processes, recipe, whole)
    moments, kills, runs = random.Random(f"{name} {processes}"), 0, 1
    while kills < KILLS:
        broken = tmp_path / f"broken{runs}"
        if kills % 2:
            deadline = time.monotonic() + moments.uniform(0, seconds)
            victims = [moments.randrange(processes)] if moments.random() < 0.5 else list(range(processes))
            was_killed = killed(
                processes, recipe, broken, said, victims=victims, when=lambda end=deadline: time.monotonic() > end
            )
        else:
            operation = moments.randrange(1, 250)
            was_killed = killed(processes, recipe, broken, said, victims=[], last_operation=operation)
        kills += was_killed
        if not was_killed:  # it came to its end before
            assert fingerprints(broken) == fingerprints(whole)
            runs += 1
    broken = tmp_path / f"broken{runs}"
    undisturbed(processes, recipe, broken)
    assert fingerprints(broken) == fingerprints(whole)
    assert said.read_text().count("going on at step") >= 2
