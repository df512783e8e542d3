"""Training a run for longer than it began with, by more epochs or more patience, where that has an exact meaning.

A run of 3 epochs that is resumed with 5 ends with the bits of a run of 5. Where the learning rate of the first step
depends on the number of epochs there is no such run, and `training.start_from` trains on from the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from showtell.errors import RecipeError
from showtell.training.recipe import Recipe
from showtell.training.schedule import DECAYS_OVER_THE_RUN


def accept_longer(before: Recipe, now: Recipe, folder: Path) -> Recipe:
    """The recipe that a run began with, with those of the new settings that train it for longer.

    Args:
        before: the recipe as the run began.
        now: the recipe to resume with.
        folder: of the run.

    Raises:
        RecipeError: there are more epochs, over which the learning rate decays.
    """
    old, new = before.training, now.training
    if new.epochs > old.epochs and old.schedule in DECAYS_OVER_THE_RUN:
        raise RecipeError(
            f"The run in {folder} cannot be resumed for training.epochs={new.epochs}: its learning rate decays over "
            f"{old.epochs} epochs (training.schedule={old.schedule}), and over {new.epochs} it would have been another "
            "one from the first step on; train on from its weights, with a schedule that begins anew: --out ANOTHER "
            f"training.start_from={folder / 'best'}."
        )
    longer: dict[str, Any] = {}
    if new.epochs > old.epochs:
        longer["epochs"] = new.epochs
    if old.patience is not None and (new.patience is None or new.patience > old.patience):
        longer["patience"] = new.patience
    if new.patience_steps > old.patience_steps:
        longer["patience_steps"] = new.patience_steps
    return before.model_copy(update={"training": old.model_copy(update=longer)})


def refuse_inexact(before: Recipe, now: Recipe, folder: Path, *, supervised: bool) -> str | None:
    """Whether a run that has come to its end can be trained for more epochs.

    Args:
        before: the recipe as the run began.
        now: the recipe to resume with.
        folder: of the run.
        supervised: whether a reward watchdog judged its last validation.

    Returns:
        A sentence about a validation that a run of that many epochs would not have had; None if there is none.

    Raises:
        RecipeError: the watchdog did not act on the last validation, as it would have in a longer run.
    """
    old, new = before.training.epochs, now.training.epochs
    if supervised:
        raise RecipeError(
            f"The run in {folder} is finished: its reward watchdog took no action at the last validation, as it would "
            f"have in a run of {new} epochs; train on from its weights with --out ANOTHER "
            f"training.start_from={folder / 'best'}."
        )
    every = now.training.validate_every
    if now.data.validation_split is not None and old % every:
        return (
            f"epoch {old} was validated as the last one, which a run of {new} epochs would not do "
            f"(training.validate_every={every})"
        )
    return None
