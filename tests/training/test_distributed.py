"""Real processes on the CPU (gloo): what they find together is what one process finds."""

import copy
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml

from showtell.counter_rng import key_of
from showtell.training import make_recipe, train
from showtell.training.loop import Trainer
from showtell.types import PreparedBatch
from tests.objectives.test_caption_loss import loss_of_captions
from tests.training import process_group
from tests.training.test_loop import fingerprints, log_of

# Means over the captions of a process, which add up to those of a batch only as far as these are alike.
APPROXIMATE = {"goal_norm", "goal_spread", "intrinsic", "entropy"}

SMALL = {"embedding_size": 16, "hidden_size": 24, "attention_size": 16, "dropout": 0.3}
STAGES = {"name": "stack", **SMALL}
GOALS = {
    "name": "hacap", "embedding_size": 16, "hidden_size": 24, "attention_size": 16, "goal_size": 4,
    "discriminator_image": "attended",
}  # fmt: skip

# name: sections of the recipe
RUNS: dict[str, dict[str, dict[str, Any]]] = {
    "cross_entropy": {"encoder": {"start_epoch": 1}},
    "accumulated": {"training": {"batch_size": 4, "gradient_accumulation": 2}},
    "hard_attention": {
        "model": {"name": "sat", "attention": "hard", "expectation_per": "batch", **SMALL, "dropout": 0.5},
        "objective": {"name": "hard_attention", "doubly_stochastic": 0.1},
    },
    "two_layers": {  # dropout within a step, which draws for each word, and words of the model's own
        "model": {"name": "nic", "layers": 2, "embedding_size": 16, "hidden_size": 24, "dropout": 0.5},
        "objective": {
            "name": "cross_entropy",
            "scheduled_sampling": {"max_probability": 0.3, "increment": 0.3, "increment_epochs": 1},
        },
    },
    "labels": {
        "model": {"name": "updown", "multi_label": True, "weight_norm": True, **SMALL},
        "objective": {"name": "cross_entropy", "word_presence": 0.05, "multi_label": 0.1},
    },
    # weights without a gradient: of the earlier stages' words, of the subgoals
    "last_stage": {"model": STAGES, "objective": {"name": "cross_entropy", "earlier_stage_weight": 0.0}},
    "goals_as_they_are": {"model": GOALS, "objective": {"name": "cross_entropy"}},
    "self_critical": {"objective": {"name": "self_critical", "samples": 2}},
    "coarse_to_fine": {"model": STAGES, "objective": {"name": "coarse_to_fine", "samples": 2}},
    "beam": {"objective": {"name": "self_critical", "samples": 2, "sampling": "beam", "baseline": "mean"}},
    "adversarial_pretraining": {"model": GOALS, "objective": {"name": "adversarial_pretraining"}},
    "adversarial": {
        "model": GOALS,
        "objective": {"name": "adversarial", "samples": 2, "rollouts": 1, "interleave": 1, "external_weight": 0.3},
    },
}  # fmt: skip


def train_and_record(recipe: dict[str, Any], folder: Path) -> None:
    """A run; each process writes what it ended with beside it, as RUN.0.json, RUN.1.json ..."""
    trainer = Trainer(make_recipe(recipe), folder, resume=False, quiet=True)
    process = trainer.accelerator.process_index
    captions: dict[str, str] = {}
    judge = trainer._judge

    def recorded_judge(epoch: int, validation: Any) -> None:
        captions.update({image: caption.text for image, caption in validation.captions.items()})
        judge(epoch, validation)

    trainer._judge = recorded_judge  # type: ignore[method-assign]
    result = trainer.fit()
    weights = b"".join(tensor.numpy().tobytes() for tensor in trainer.model.decoder.state_dict().values())
    content = {
        "weights": hashlib.sha256(weights).hexdigest(), "best": result.best, "best_epoch": result.best_epoch,
        "is_half": trainer.step.rounds_products or trainer.accelerator.mixed_precision == "bf16",
        "captions": captions, "data": f"{key_of(*trainer.data.contents())}",
    }  # fmt: skip
    folder.with_name(f"{folder.name}.{process}.json").write_text(json.dumps(content))


def run_all(jobs: list[tuple[dict[str, Any], Path]]) -> None:
    for recipe, folder in jobs:
        train_and_record(recipe, folder)


def recipe_of(name: str, tiny_recipe: dict[str, Any], start: Path) -> dict[str, Any]:
    """Batches of 8, 8 and 2 images, of which two processes of four have none; no batch norm, and an even optimiser."""
    recipe = copy.deepcopy(tiny_recipe)
    recipe["data"] |= {"limit": 18}
    recipe["encoder"]["norm"] = "none"
    recipe["training"] |= {"epochs": 2, "learning_rate": 0.05, "optimizer": {"name": "sgd", "momentum": 0.0}}
    recipe["encoder"]["learning_rate"] = 0.01
    for section, content in RUNS[name].items():
        recipe[section] = content if section in ("model", "objective") else {**recipe[section], **content}
    if name == "self_critical":
        recipe["training"]["start_from"] = str(start)
    return recipe


def launch(processes: int, jobs: list[tuple[dict[str, Any], Path]], folder: Path) -> None:
    output = folder / "output"
    statuses = process_group.end(process_group.start(processes, output, run_all, jobs))
    assert statuses == [0] * processes, output.read_text()[-6000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone")


@pytest.fixture
def alone(folder: Path, tiny_recipe: dict[str, Any]) -> Callable[[str], Path]:
    """The run of one process by a recipe of `RUNS`; each is made once."""

    def run_of(name: str) -> Path:
        start = run_of("cross_entropy") / "best" if name == "self_critical" else folder
        if not (folder / name).exists():
            train_and_record(recipe_of(name, tiny_recipe, start), folder / name)
        return folder / name

    return run_of


@pytest.mark.parametrize(
    ("processes", "names"),
    [
        pytest.param(2, ["cross_entropy", "hard_attention", "self_critical"], id="two"),
        pytest.param(2, list(RUNS), id="two-all", marks=pytest.mark.slow),
        pytest.param(4, list(RUNS), id="four-all", marks=pytest.mark.slow),
    ],
)
def test_processes_find_together_what_one_finds(processes, names, alone, tiny_recipe, tmp_path):
    """The losses and parts of all steps, the validations and the captions; weights alike on all."""
    start = alone("cross_entropy") / "best"
    launch(processes, [(recipe_of(name, tiny_recipe, start), tmp_path / name) for name in names], tmp_path)
    for name in names:
        run, reference = tmp_path / name, alone(name)
        for expected, actual in zip(log_of(reference), log_of(run), strict=True):
            assert set(actual) == set(expected), name
            if "validation" in expected:
                assert actual["validation"] == pytest.approx(expected["validation"], rel=1e-4), name
            else:
                kept = {part: value for part, value in expected.items() if part not in APPROXIMATE}
                close = 2e-4 if expected["step"] == 1 else 1e-3  # cosines of small differences magnify the last bits
                # abs: rewards of about 2 minus their baseline, in float32 (`reinforce`)
                assert {part: actual[part] for part in kept} == pytest.approx(kept, rel=close, abs=5e-6), name
        expected = json.loads(reference.with_name(f"{name}.0.json").read_text())
        ends = [json.loads((tmp_path / f"{name}.{rank}.json").read_text()) for rank in range(processes)]
        assert all(end == ends[0] for end in ends), name
        assert ends[0]["captions"] == expected["captions"], name


PENALTY = 0.7
PENALISED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # objective and model; no other terms, no chance
    "cross_entropy": ({}, {"name": "sat", **SMALL}),
    "hard_attention": (
        {"reinforce": 0, "entropy": 0},
        {"name": "sat", "attention": "hard", "expectation_probability": 1.0, **SMALL},
    ),
    "adversarial_pretraining": ({"manager_weight": 0, "discriminator_weight": 0}, GOALS),
}


def test_the_total_of_a_step_is_that_of_its_captions_by_hand(tiny_recipe, tmp_path):
    """Xu et al. 2015, §4.2.1, word by word and cell by cell, in one step: accumulated, and in two processes."""
    jobs, expected = [], {}
    for name, (settings, model) in PENALISED.items():
        recipe = copy.deepcopy(tiny_recipe)
        recipe["data"] |= {"limit": 6, "captions_per_image": 20}
        recipe["encoder"] |= {"norm": "none", "trained": False}
        recipe["model"] = {**model, "dropout": 0.0}
        recipe["objective"] = {"name": name, "doubly_stochastic": PENALTY, **settings}
        recipe["training"] |= {"epochs": 1}
        trainer = Trainer(make_recipe(recipe), tmp_path / f"by-hand-{name}", resume=False, quiet=True)
        captioner, (ids, captions) = trainer.captioner, zip(*trainer.data.contents(), strict=True)
        assert len(ids) == 6
        photos = [trainer.data[0, number].image for number in range(6)]
        with torch.no_grad():
            images = [captioner.encoder.eval()(PreparedBatch.of(photo.unsqueeze(0))) for photo in photos]
        expected[name] = loss_of_captions(captioner.decoder.train(), images, captions, PENALTY)
        assert expected[name] > 1.1 * loss_of_captions(captioner.decoder, images, captions, 0)
        jobs.append((recipe, tmp_path / name))
        accumulated = copy.deepcopy(recipe)
        accumulated["training"] |= {"batch_size": 2, "gradient_accumulation": 3}
        train_and_record(accumulated, tmp_path / f"accumulated-{name}")
    launch(2, jobs, tmp_path)
    for name in PENALISED:
        for run in (name, f"accumulated-{name}"):
            assert log_of(tmp_path / run)[0]["loss"] == pytest.approx(expected[name], rel=1e-4), run


LAUNCHERS = {
    "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"],
    "accelerate": ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_launcher_passes_on_saves_a_run_and_a_lost_process_loses_nothing(launcher, tiny_recipe, tmp_path):
    """Ctrl-C at the launcher in the first epoch, SIGTERM and SIGKILL to one process in the second; then to the end."""
    file, whole, broken = tmp_path / "tiny.yaml", tmp_path / "whole", tmp_path / "broken"
    file.write_text(yaml.safe_dump(tiny_recipe))
    assert process_group.end(process_group.start(2, tmp_path / "undisturbed", train, file, whole)) == [0, 0]

    output = tmp_path / "output"

    def start() -> subprocess.Popen[bytes]:
        command = [*LAUNCHERS[launcher], "-m", "showtell", "train", str(file), "--out", str(broken), "--resume"]
        environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
        with output.open("a") as stream:
            return subprocess.Popen(
                [sys.executable, *command], env=environment, stderr=stream, stdout=stream, start_new_session=True
            )

    def stop_at(lines: int, stop: Callable[[subprocess.Popen[bytes]], None]) -> str:
        running, log, deadline = start(), broken / "log.jsonl", time.monotonic() + 200
        before = len(output.read_text())
        while not log.exists() or log.read_bytes().count(b"\n") < lines:
            assert running.poll() is None and time.monotonic() < deadline, output.read_text()[-3000:]
            time.sleep(0.005)
        stop(running)
        assert running.wait(timeout=200) != 0
        return output.read_text()[before:]

    def kill_second(running: subprocess.Popen[bytes]) -> None:
        (second,) = (child for child in psutil.Process(running.pid).children() if child.environ().get("RANK") == "1")
        second.kill()

    # 7 steps and a validation make an epoch
    text = stop_at(2, lambda running: os.killpg(running.pid, signal.SIGINT))
    assert "finishing this step, then saving" in text and "resume with --resume" in text
    text = stop_at(10, lambda running: running.send_signal(signal.SIGTERM))
    assert re.search(r"resuming at step [2-7] of 21", text) and "finishing this step, then saving" in text
    text = stop_at(19, kill_second)
    assert re.search(r"resuming at step (9|1\d) of 21", text)
    assert "Another process of this run was lost or no longer answers" in text
    assert f"{broken / 'last'} is the last good checkpoint: add --resume." in text
    assert start().wait(timeout=200) == 0
    assert "resuming at step 14 of 21" in output.read_text()
    assert fingerprints(broken) == fingerprints(whole)
