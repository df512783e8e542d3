"""A run resumed with more epochs or more patience ends with the bits of one that had them from the beginning."""

from __future__ import annotations

import copy

import pytest

from showtell.errors import RecipeError, UsageError
from showtell.training import make_recipe, train
from showtell.training.prolonging import accept_longer, refuse_inexact
from tests.cli.test_caption import run
from tests.training.test_loop import fingerprints, log_of


@pytest.mark.parametrize(
    "schedule",
    [{"schedule": "constant", "warmup_steps": 30, "ema_decay": 0.9}, {"schedule": "step", "decay_epochs": 2}],
    ids=lambda schedule: schedule["schedule"],
)
def test_three_epochs_and_two_more_are_five(schedule, tiny_recipe, tmp_path, capsys):
    tiny_recipe["training"] |= {**schedule, "epochs": 5}
    whole = train(copy.deepcopy(tiny_recipe), tmp_path / "whole", quiet=True).folder
    tiny_recipe["training"]["epochs"] = 3
    longer = train(tiny_recipe, tmp_path / "longer", quiet=True).folder
    assert fingerprints(longer) != fingerprints(whole)
    capsys.readouterr()
    assert run(capsys, "train", longer, "--resume", "training.epochs=5")[0] == 0
    assert fingerprints(longer) == fingerprints(whole)


def test_a_finished_run_says_how_it_goes_on_and_is_left_as_it_was(tiny_recipe, tmp_path, capsys):
    tiny_recipe["training"]["epochs"] = 1
    folder = train(tiny_recipe, tmp_path / "run", quiet=True).folder
    before = fingerprints(folder)
    status, _, err = run(capsys, "train", folder, "--resume")
    assert status == 0
    assert "the run is finished; a greater training.epochs trains it for longer" in err
    status, _, err = run(capsys, "train", folder, "--resume", "training.epochs=5")
    assert (status, err) == (
        2,
        f"showtell: The run in {folder} cannot be resumed for training.epochs=5: its learning rate decays over 1 "
        "epochs (training.schedule=cosine), and over 5 it would have been another one from the first step on; train "
        f"on from its weights, with a schedule that begins anew: --out ANOTHER training.start_from={folder}/best.\n",
    )
    status, _, err = run(capsys, "train", folder)
    assert (status, err) == (
        2,
        f"showtell: {folder} is the folder of a run: add --resume to resume it, or train by {folder}/recipe.yaml with "
        "another --out.\n",
    )
    with pytest.raises(UsageError, match="is the folder of a run"):
        train(folder)
    assert fingerprints(folder) == before


def test_a_run_that_lost_its_patience_goes_on_with_more(tiny_recipe, tmp_path, capsys):
    tiny_recipe["training"] |= {"epochs": 4, "patience": 1, "learning_rate": 1e-9}
    tiny_recipe["encoder"]["learning_rate"] = 1e-9  # nothing is learned, so the second validation is no better
    folder = train(tiny_recipe, tmp_path / "stopped").folder
    assert len([line for line in log_of(folder) if "validation" in line]) == 2
    tiny_recipe["training"]["patience"] = None
    whole = train(copy.deepcopy(tiny_recipe), tmp_path / "whole", quiet=True).folder
    capsys.readouterr()
    result = train(tiny_recipe, folder, resume=True)
    assert "resuming at step 14 of 28" in capsys.readouterr().err
    assert result.epochs == 4
    assert fingerprints(folder) == fingerprints(whole)


def test_patience_counts_steps_too(tiny_recipe, tmp_path):
    """7 steps an epoch: no better score for 15 steps is that after the third epoch without one."""
    tiny_recipe["training"] |= {"epochs": 9, "patience": 1, "patience_steps": 15, "learning_rate": 1e-9}
    tiny_recipe["encoder"]["learning_rate"] = 1e-9
    result = train(tiny_recipe, tmp_path / "run", quiet=True)
    assert (result.epochs, result.best_epoch) == (4, 1)


def test_only_what_is_longer_is_accepted(tiny_recipe, tmp_path):
    tiny_recipe["training"] |= {"schedule": "constant", "patience": 4, "patience_steps": 50}
    before = make_recipe(tiny_recipe)
    for change, accepted in (
        ({"epochs": 4}, True),
        ({"epochs": 2}, False),
        ({"patience": 5}, True),
        ({"patience": None}, True),
        ({"patience": 3}, False),
        ({"patience_steps": 60}, True),
        ({"patience_steps": 40}, False),
        ({"learning_rate": 1.0}, False),
    ):
        other = copy.deepcopy(tiny_recipe)
        other["training"] |= change
        now = make_recipe(other)
        assert (accept_longer(before, now, tmp_path) == now) is accepted, change


def test_what_the_end_of_a_run_changed_is_told_or_refused(tiny_recipe, tmp_path, capsys):
    tiny_recipe["training"] |= {"schedule": "constant", "epochs": 1, "validate_every": 2}
    folder = train(tiny_recipe, tmp_path / "run", quiet=True).folder
    capsys.readouterr()
    tiny_recipe["training"]["epochs"] = 2
    train(tiny_recipe, folder, resume=True)
    sentence = "epoch 1 was validated as the last one, which a run of 2 epochs would not do (training.validate_every=2)"
    assert sentence in capsys.readouterr().err
    now = make_recipe(tiny_recipe)
    before = now.model_copy(update={"training": now.training.model_copy(update={"epochs": 1})})
    assert refuse_inexact(before, now, folder, supervised=False) == sentence
    with pytest.raises(
        RecipeError, match="its reward watchdog took no action at the last validation, as it would have"
    ):
        refuse_inexact(before, now, folder, supervised=True)
