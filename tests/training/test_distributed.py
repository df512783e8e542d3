"""Real processes on the CPU (gloo): what they find together is what one process finds."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from showtell.errors import TrainingError
from showtell.training.breakdowns import in_words
from tests.conftest import ROOT
from tests.training import many_processes
from tests.training.test_loop import fingerprints, log_of

# Means over the captions of a process, which add up to those of a batch only as far as these are alike.
APPROXIMATE = {"goal_norm", "goal_spread", "intrinsic", "entropy"}

SMALL = {"embedding_size": 16, "hidden_size": 24, "attention_size": 16, "dropout": 0.3}
STAGES = {"name": "stack", **SMALL}
GOALS = {
    "name": "hacap", "embedding_size": 16, "hidden_size": 24, "attention_size": 16, "goal_size": 4,
    "discriminator_image": "mean",
}  # fmt: skip

# name: sections of the recipe
RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "cross_entropy": {"training": {"ema_decay": 0.9}, "encoder": {"start_epoch": 1}},
    "accumulated": {"training": {"batch_size": 4, "gradient_accumulation": 2}},
    "hard_attention": {
        "model": {"name": "sat", "attention": "hard", "coin": "batch", **SMALL, "dropout": 0.5},
        "objective": {"name": "hard_attention", "doubly_stochastic": 0.1},
    },
    "two_layers": {  # dropout within a step, which draws for each word, and words of the model's own
        "model": {"name": "nic", "layers": 2, "embedding_size": 16, "hidden_size": 24, "dropout": 0.5},
        "objective": {"name": "cross_entropy", "scheduled_sampling": {"highest": 0.3, "first": 0.3}},
    },
    "self_critical": {"objective": {"name": "self_critical", "samples": 2}, "training": {"pilot": {"patience": 1}}},
    "coarse_to_fine": {"model": STAGES, "objective": {"name": "coarse_to_fine", "samples": 2}},
    "adversarial_pretraining": {"model": GOALS, "objective": {"name": "adversarial_pretraining"}},
    "adversarial": {
        "model": GOALS,
        "objective": {"name": "adversarial", "samples": 2, "rollouts": 1, "interleave": 1, "external": 0.3},
    },
}  # fmt: skip


def recipe_of(name: str, tiny_recipe: dict[str, Any], start: Path) -> dict[str, Any]:
    """Batches of 8, 8 and 2 images: of the last one, two processes of four have none.

    Without batch norm, and with an optimiser that does not turn the last bit of a gradient into a step.
    """
    recipe = copy.deepcopy(tiny_recipe)
    recipe["data"] |= {"limit": 18}
    recipe["encoder"]["norm"] = "none"
    recipe["training"] |= {"epochs": 2, "learning_rate": 0.05, "optimizer": {"name": "sgd", "momentum": 0.0}}
    recipe["encoder"]["learning_rate"] = 0.01
    for section, content in RUNS[name].items():
        recipe[section] = content if section in ("model", "objective") else {**recipe[section], **content}
    if name == "self_critical":
        recipe["training"]["start_from"] = str(start)
        recipe["training"]["pilot"] |= {"least_cider": 0.0}
    else:
        recipe["training"]["pilot"] = None
    return recipe


def launch(processes: int, jobs: list[tuple[dict[str, Any], Path]], where: Path) -> None:
    file = where / f"jobs{processes}.json"
    file.write_text(json.dumps([(recipe, str(folder)) for recipe, folder in jobs]))
    arguments = ["--standalone", "--nproc_per_node", str(processes), "-m", "tests.training.many_processes", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments], capture_output=True, text=True, timeout=200,
        cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]


class Runs:
    """The runs of one process, and of several."""

    def __init__(self, folder: Path, tiny_recipe: dict[str, Any]) -> None:
        self.folder = folder
        self.recipe = tiny_recipe
        self.launched: dict[int, list[str]] = {}

    def of_one(self, name: str) -> Path:
        run = self.folder / f"one-{name}"
        if not run.exists():
            if name == "self_critical":
                self.of_one("cross_entropy")
            many_processes.run(recipe_of(name, self.recipe, self.folder / "one-cross_entropy" / "best"), run)
        return run

    def of_many(self, processes: int, names: list[str]) -> dict[str, Path]:
        runs = {name: self.folder / f"{processes}-{name}" for name in names}
        self.of_one("cross_entropy")
        start = self.folder / "one-cross_entropy" / "best"
        launch(processes, [(recipe_of(name, self.recipe, start), run) for name, run in runs.items()], self.folder)
        return runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distributed")


@pytest.mark.parametrize(
    ("processes", "names"),
    [
        pytest.param(2, list(RUNS), id="two"),
        pytest.param(4, ["cross_entropy", "hard_attention"], id="four"),
        pytest.param(4, list(RUNS), id="four-all", marks=pytest.mark.slow),
    ],
)
def test_processes_find_together_what_one_finds(processes, names, folder, tiny_recipe, tmp_path):
    """The losses and parts of all steps, the validations and the captions; weights and decisions alike on all."""
    alone = Runs(folder, tiny_recipe)
    many = Runs(tmp_path, tiny_recipe)
    many.of_one = alone.of_one  # type: ignore[method-assign]
    (tmp_path / "one-cross_entropy").symlink_to(alone.of_one("cross_entropy"))
    for name, run in many.of_many(processes, names).items():
        reference = alone.of_one(name)
        for expected, found in zip(log_of(reference), log_of(run), strict=True):
            assert set(found) == set(expected), name
            if "validation" in expected:
                assert found["validation"] == pytest.approx(expected["validation"], rel=1e-4), name
            elif "pilot" not in expected:
                kept = {part: value for part, value in expected.items() if part not in APPROXIMATE}
                close = 2e-4 if expected["step"] == 1 else 1e-3  # cosines of small differences magnify the last bits
                assert {part: found[part] for part in kept} == pytest.approx(kept, rel=close, abs=1e-6), name
        expected = json.loads(reference.with_name(f"{reference.name}.0.json").read_text())
        ends = [json.loads(run.with_name(f"{run.name}.{rank}.json").read_text()) for rank in range(processes)]
        assert all(end == ends[0] for end in ends), name
        assert ends[0]["captions"] == expected["captions"], name
        assert ends[0]["decisions"] == expected["decisions"], name


def launched(recipe: Path, run: Path) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "showtell", "train", str(recipe), "--out", str(run), "--resume",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_lost_process_is_said_and_resuming_ends_with_the_same_bits(tiny_recipe, tmp_path):
    """SIGKILL to the second of two processes in the second epoch, against an undisturbed run."""
    tiny_recipe["encoder"]["norm"] = "none"
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(launched(file, whole), check=True, capture_output=True, timeout=280)

    with (tmp_path / "said").open("w") as said:
        launcher = subprocess.Popen(launched(file, broken), stderr=said, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 200
        log = broken / "log.jsonl"
        while not log.exists() or log.read_bytes().count(b"\n") < 10:  # 7 steps and a validation in an epoch
            assert launcher.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        (second,) = (
            child for child in psutil.Process(launcher.pid).children() if child.environ().get("RANK") == "1"
        )  # fmt: skip
        second.kill()
        assert launcher.wait(timeout=200) != 0
    sentence = (tmp_path / "said").read_text()
    assert "Another process of this run was lost or no longer answers" in sentence
    assert f"{broken / 'last'} is the last good checkpoint: go on with --resume." in sentence
    done = subprocess.run(launched(file, broken), check=True, capture_output=True, text=True, timeout=280)
    assert done.stderr.count("going on at step 7 of 21") == 1
    assert fingerprints(broken) == fingerprints(whole)


def test_errors_of_the_machinery_become_sentences_and_others_stay(tmp_path):
    gloo = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error [127.0.0.1]:1: Connection reset. T"
    for message, said in (
        (gloo, "Another process of this run was lost or no longer answers .*Nothing was kept yet"),
        ("DataLoader worker (pid 7) is killed by signal: Killed. ", r"Reading photos has failed \(DataLoader worker"),
        ("DataLoader timed out after 600 seconds", "set data.workers=0"),
    ):
        with pytest.raises(TrainingError, match=said), in_words(tmp_path):
            raise RuntimeError(message)
    with pytest.raises(RuntimeError, match="a defect"), in_words(tmp_path):
        raise RuntimeError("a defect")
