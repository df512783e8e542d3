"""The options of training: what each does to weights and numbers, and that all of them together resume exactly."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from showtell.errors import RecipeError
from showtell.training import loop, make_recipe, train, validation
from tests.training.test_loop import fingerprints, log_of


def trainer(recipe: dict[str, Any], folder: Path) -> loop.Trainer:
    return loop.Trainer(make_recipe(recipe), folder, resume=False, quiet=True)


def weights(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def after_each_step(monkeypatch, act) -> None:
    """Call act(trainer) after each step of the optimiser."""
    step = loop.Trainer._step

    def watched(self, group):
        numbers = step(self, group)
        act(self)
        return numbers

    monkeypatch.setattr(loop.Trainer, "_step", watched)


class KilledError(Exception):
    """What ends a run in these tests without letting it save."""


def train_killed(monkeypatch, steps: int, *recipe_and_folder: Any, **options: Any) -> None:
    """A run that dies after a number of steps."""

    def kill(trainer) -> None:
        if trainer.progress.step == steps - 1:  # the step is counted when it is over
            raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        after_each_step(patch, kill)
        train(*recipe_and_folder, **options)


def test_with_every_option_a_killed_run_ends_with_the_same_bits(tiny_recipe, tmp_path, monkeypatch):
    """Killed in the fourth step, in which the encoder is frozen, and in the eighth, in which it learns.

    50 images in batches of 8, two a step, are 4 steps an epoch.
    """
    tiny_recipe["model"]["attention"] = "hard"
    tiny_recipe["encoder"] |= {"start_epoch": 1, "learning_rate": 0.001}
    tiny_recipe["objective"] |= {
        "name": "hard_attention", "label_smoothing": 0.1,
        "scheduled_sampling": {"max_probability": 0.5, "increment": 0.3, "increment_epochs": 1},
    }  # fmt: skip
    tiny_recipe["training"] |= {
        "epochs": 2, "optimizer": {"name": "adamw", "weight_decay": 0.01},
        "schedule": "step", "decay_epochs": 1, "decay_factor": 0.7, "clip_value": 0.2, "clip_norm": 1.0,
        "gradient_accumulation": 2, "mixed_precision": "bf16", "bucket": 2,
        "selection_metric": "bleu_4", "patience": 3, "save_every": 3,
    }  # fmt: skip
    whole = train(tiny_recipe, tmp_path / "whole", quiet=True).folder
    for steps in (4, 8):
        train_killed(monkeypatch, steps, tiny_recipe, tmp_path / "broken", resume=True, quiet=True)
    broken = train(tiny_recipe, tmp_path / "broken", resume=True, quiet=True).folder
    files = fingerprints(whole)
    assert {"last/model.safetensors", "last/training/optimizer.safetensors", "best/model.safetensors"} <= set(files)
    log = log_of(whole)
    assert len(log) == 8 + 2
    rates = [line["learning_rate"] for line in log if "learning_rate" in line]  # three steps of warm-up, then the stair
    assert rates == pytest.approx([0.004 / 3, 0.008 / 3, 0.004, 0.004] + [0.7 * 0.004] * 4)
    assert fingerprints(broken) == files


def test_values_are_clipped_before_the_norm(tiny_recipe, tmp_path, monkeypatch):
    """In descent with rate 1 each step is the clipped gradient. The norm that is logged is that of clipped values."""
    tiny_recipe["training"] |= {
        "epochs": 1, "learning_rate": 1.0, "schedule": "constant", "warmup_steps": 0, "clip_value": 1e-3,
        "clip_norm": 1e-2, "optimizer": {"name": "sgd", "momentum": 0.0},
    }  # fmt: skip
    tiny_recipe["encoder"]["learning_rate"] = 1.0
    run = trainer(tiny_recipe, tmp_path / "run")
    snapshots = [weights(run.model)]
    after_each_step(monkeypatch, lambda self: snapshots.append(weights(self.model)))
    run.fit()
    norms = [line["gradient_norm"] for line in log_of(tmp_path / "run") if "gradient_norm" in line]
    learned = {name: weight.numel() for name, weight in run.model.named_parameters()}
    assert all(1e-2 < norm <= 1e-3 * sum(learned.values()) ** 0.5 for norm in norms)
    step = torch.cat([(snapshots[1][name].double() - snapshots[0][name].double()).flatten() for name in learned])
    assert float(step.norm()) == pytest.approx(1e-2, rel=1e-3)  # all are scaled to the limit
    assert float(step.abs().max()) == pytest.approx(1e-3 * 1e-2 / norms[0], rel=1e-2)  # and none was above 1e-3 before


def test_the_encoder_learns_from_its_epoch_on(tiny_recipe, tmp_path, monkeypatch):
    """Before it: no change, batch norm included, nothing kept by autograd, and no state of the optimiser."""
    tiny_recipe["encoder"]["start_epoch"] = 1
    tiny_recipe["training"]["epochs"] = 2
    run = trainer(tiny_recipe, tmp_path / "run")
    encoder, objective = run.captioner.encoder, run.model.objective
    snapshots = [weights(encoder)]
    modes: list[bool] = []
    is_kept: list[bool] = []
    encoder_weights = set(encoder.parameters())
    forward = objective.forward

    def look(batch, features, decoder):
        if torch.is_grad_enabled():  # not a validation
            is_kept.append(features.vectors.requires_grad)
        return forward(batch, features, decoder)

    def watch(self) -> None:
        snapshots.append(weights(encoder))
        modes.append(encoder.training)
        known = {weight for weight in self.optimizer.optimizer.state if weight in encoder_weights}
        assert known == (encoder_weights if self.progress.step >= 7 else set())

    monkeypatch.setattr(objective, "forward", look)
    after_each_step(monkeypatch, watch)
    run.fit()
    assert modes == is_kept == [False] * 7 + [True] * 7  # 7 steps an epoch
    for step in range(8):
        assert all(torch.equal(tensor, snapshots[0][name]) for name, tensor in snapshots[step].items()), step
    changed = [name for name, tensor in snapshots[8].items() if not torch.equal(tensor, snapshots[0][name])]
    assert sorted(changed) == sorted(snapshots[0])


def test_a_score_that_cannot_be_computed_is_said_before_training(tiny_recipe, tmp_path, monkeypatch):
    tiny_recipe["training"]["selection_metric"] = "meteor"
    monkeypatch.setattr(
        validation, "score", lambda *_, **__: SimpleNamespace(skipped={"meteor": "its data is missing."})
    )
    with pytest.raises(RecipeError, match=r"training\.selection_metric=meteor cannot be computed here: its data is mi"):
        train(tiny_recipe, tmp_path / "run", quiet=True)
