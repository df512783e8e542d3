"""A sweep: one recipe trained with many values of chosen keys, and one table. Resumable, and open to several processes.

    sweep folder/
      sweep.json                       the table: each trial with its values, scores and, if it failed, the sentence
      sweep.db                         Optuna's study: which trials wait, which run, and what they reached
      hidden_size=256,dropout=0.3/     a run folder like any other, and when the trial has ended:
        trial.json                     its row of the table, and its recipe

A trial's folder is named after its values, and `trial.json` is the record of how it ended: a call with more values or
another metric takes over what is there. Grid and random trials are known before the first one starts; TPE and the
Gaussian process choose each trial by those that have ended, with random numbers of (seed, number of the trial).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from showtell.errors import RecipeError, TrainingError, UsageError, WeightsError, nearest, summarise
from showtell.files import read_json, read_log, write_json
from showtell.scores import numbers, selection_metrics, validation_numbers
from showtell.training.console import TrainingConsole
from showtell.training.loop import train
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import make_recipe, refuse
from showtell.training.recipe_loading import load_recipe
from showtell.training.run_folder import changes
from showtell.training.sweep_space import (
    Parameters,
    Space,
    extremes,
    grid,
    in_yaml,
    parameters_of,
    parse_space,
    random_trials,
    trial_name,
    values_of,
)
from showtell.training.sweep_study import LEARNING_SAMPLERS, Claim, SweepStudy

SAMPLERS = ("grid", "random", *LEARNING_SAMPLERS)
# What is wrong with a trial's own values. Any other error, such as a missing dataset, would stop every trial alike.
TRIAL_ERRORS = (RecipeError, TrainingError, WeightsError, torch.OutOfMemoryError)


@dataclass(frozen=True)
class Row:
    """A trial in the table: how it ended, or that it has not yet."""

    run: str  # its folder within the sweep's
    values: dict[str, Any]
    status: Literal["waiting", "finished", "failed"] = "waiting"
    epoch: int | None = None  # that `best/` is from
    scores: dict[str, float] | None = None  # validation at that epoch
    error: str | None = None  # why it failed


@dataclass(frozen=True)
class SweepResult:
    """All trials, the best first, then those that failed or wait."""

    folder: Path
    metric: str
    rows: tuple[Row, ...]
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {"metric": self.metric, "trials": [vars(row) for row in self.rows]}


def sweep(
    recipe: Path,
    axes: Sequence[str],
    out: Path | None = None,
    *,
    sampler: str | None = None,
    trials: int | None = None,
    seed: int = 0,
    metric: str = "cider",
    retry: bool = False,
    quiet: bool = False,
) -> SweepResult:
    """Train a recipe once for each trial; what has ended is not trained again.

    Args:
        recipe: a YAML file, or the name of a recipe of showtell.
        axes: "section.key=v1,v2" each, the values in YAML, or a range, "section.key=log(1e-4..1e-2)" or with uniform.
        out: the folder; None is runs/ and the recipe's name with -sweep.
        sampler: one of `SAMPLERS`; None is "random" with `trials` and "grid" without.
        trials: number of trials, for all samplers but "grid".
        seed: of the sampler.
        metric: the validation score by which trials are ordered and chosen: "loss", or one that can select `best/`.
        retry: train again what failed.
        quiet: show nothing.

    Raises:
        UsageError: an axis that cannot be read, a range in a grid, or an unknown metric or sampler.
        RecipeError: a trial's recipe has a problem, or a trial in the folder was of another recipe. No trial starts.
    """
    metrics = ("loss", *selection_metrics())
    if metric not in metrics:
        raise UsageError(f'A sweep cannot order trials by "{metric}"; {nearest(metric, metrics)}.')
    sampler = sampler or ("grid" if trials is None else "random")
    if sampler not in SAMPLERS:
        raise UsageError(f'There is no sampler "{sampler}"; {nearest(sampler, SAMPLERS)}.')
    if (sampler == "grid") != (trials is None):
        advice = "needs a number of trials: add" if trials is None else "trains every combination: leave out"
        raise UsageError(f"--sampler {sampler} {advice} --trials.")
    space = parse_space(axes)
    folder = out or Path("runs") / f"{recipe.parent.name}-{recipe.stem}-sweep"
    if (folder / "recipe.yaml").exists():
        raise UsageError(f"{folder} holds a run; choose another --out for the sweep.")
    learns = sampler in LEARNING_SAMPLERS
    planned: Sequence[Parameters] = (
        [] if learns else grid(space) if trials is None else random_trials(space, trials, seed)
    )
    names = _check_recipes(recipe, space, planned or extremes(space), metric)
    planned = [parameters for parameters in planned if _name(space, parameters) in names]  # equal recipes are one
    ended = _read_ended(folder, recipe, space)
    folder.mkdir(parents=True, exist_ok=True)
    study = SweepStudy(folder, space, metric=metric, maximise=metric != "loss", sampler=sampler, seed=seed)
    if retry:
        failed = [name for name, row in ended.items() if row.status == "failed" and (learns or name in names)]
        for name in failed:
            (folder / name / "trial.json").unlink(missing_ok=True)
        again = [_parameters(space, ended.pop(name)) for name in failed]
        planned = again if learns else planned
    study.update(planned, {name: (_parameters(space, row), _score(row, metric)) for name, row in ended.items()})
    console = TrainingConsole(quiet)

    def table(*, interrupted: bool = False) -> SweepResult:
        rows = [_row(folder, name, values) for name, values in study.trials().items() if learns or name in names]
        result = _ordered(folder, metric, rows, interrupted)
        write_json(folder / "sweep.json", result.to_json(), indent=2)
        return result

    while (claim := study.claim(trials if learns else None)) is not None:
        row = _row(folder, claim.name, claim.values)
        if row.status == "waiting":
            number = claim.number + 1 if learns else names.index(claim.name) + 1
            count = trials if learns else len(names)
            console.say(f"trial {number} of {count}: {claim.name}")
            ended_row = _train(recipe, folder, claim, quiet)
            if ended_row is None:
                claim.lock.release()
                return table(interrupted=True)
            row = ended_row
            if row.error:
                console.say(f"trial {number} failed: {row.error}")
        study.end(claim, _score(row, metric))
        table()
    return table()


# ---- before the first trial


def _name(space: Space, parameters: Parameters) -> str:
    return trial_name(values_of(space, parameters))


def _parameters(space: Space, row: Row) -> Parameters:
    parameters = parameters_of(space, row.values)
    assert parameters is not None, "`_read_ended` leaves out others"
    return parameters


def _load(recipe: Path, values: Mapping[str, Any]) -> Recipe:
    return load_recipe(recipe, [f"{key}={in_yaml(value)}" for key, value in values.items()])


def _check_recipes(recipe: Path, space: Space, trials: Sequence[Parameters], metric: str) -> list[str]:
    """The names of trials, of those with equal recipes the first alone.

    Raises:
        RecipeError: with the problems of all trials together.
        UsageError: the metric is not computed in validation.
    """
    recipes: dict[str, tuple[str, Recipe]] = {}
    problems: dict[str, None] = {}
    for parameters in trials:
        try:
            loaded = _load(recipe, values_of(space, parameters))
        except RecipeError as error:
            first, *listed = str(error).split("\n  ")
            problems |= dict.fromkeys(listed or [first])
            continue
        recipes.setdefault(loaded.model_dump_json(), (_name(space, parameters), loaded))
    refuse(problems, str(recipe), " in this sweep, so no trial was started")
    loaded_recipes = [loaded for _, loaded in recipes.values()]
    if any(loaded.data.validation_split is None for loaded in loaded_recipes):
        raise RecipeError("data.validation_split is null, so trials would have no score; name a split.")
    if len({loaded.training.mixed_precision for loaded in loaded_recipes}) > 1:
        raise RecipeError(
            "training.mixed_precision has to be the same in all trials of a sweep; make a sweep for each."
        )
    computed = [validation_numbers(loaded.training.selection_metric) for loaded in loaded_recipes]
    if metric != "loss" and any(metric not in names for names in computed):
        raise UsageError(
            f"{numbers()[metric].title} is counted in validation only where it selects; add "
            f"training.selection_metric={metric}."
        )
    return [name for name, _ in recipes.values()]


def _read_ended(folder: Path, recipe: Path, space: Space) -> dict[str, Row]:
    """The trials of the folder that have ended and are within the space, by name.

    Raises:
        RecipeError: one of them was of another recipe.
    """
    rows = {}
    for file in sorted(folder.glob("*/trial.json")):
        content = read_json(file)
        values = content["values"]
        if values.keys() != space.keys() or parameters_of(space, values) is None:
            continue
        saved = make_recipe(content["recipe"], str(file))
        if changed := changes(saved, _load(recipe, values)):
            raise RecipeError(
                f"The trial {file.parent} was of another recipe: {summarise(changed)}; choose another --out, or delete "
                "it."
            )
        rows[file.parent.name] = _row(folder, file.parent.name, values)
    return rows


# ---- trials and their rows


def _row(folder: Path, name: str, values: dict[str, Any]) -> Row:
    """The row of a trial, as its `trial.json` has it; one that waits where there is none."""
    file = folder / name / "trial.json"
    if not file.exists():
        return Row(name, values)
    content = read_json(file)
    del content["recipe"]
    return Row(**{**content, "run": name, "values": values})


def _score(row: Row, metric: str) -> float | None:
    """What the samplers know of a trial that has ended; None where it has no score."""
    score = (row.scores or {}).get(metric, math.nan)
    return score if math.isfinite(score) else None


def _train(recipe: Path, folder: Path, claim: Claim, quiet: bool) -> Row | None:
    """Train a trial to its end, from where it was; None if a person stopped it."""
    run, loaded = folder / claim.name, _load(recipe, claim.values)
    try:
        result = train(loaded, run, resume=True, quiet=quiet)
    except TRIAL_ERRORS as error:
        row = Row(claim.name, claim.values, "failed", error=str(error))
    else:
        if result.interrupted:
            return None
        epoch = result.best_epoch
        row = Row(claim.name, claim.values, "finished", epoch, _validation_scores(run, epoch))
    write_json(run / "trial.json", {**vars(row), "recipe": loaded.model_dump(mode="json")}, indent=2)
    return row


def _validation_scores(run: Path, epoch: int | None) -> dict[str, float]:
    """The validation scores of an epoch."""
    for line in read_log(run / "log.jsonl"):
        if "validation" in line and line["epoch"] == epoch:
            return dict(line["validation"])
    raise AssertionError(f"{run} has no validation of epoch {epoch}")


def _ordered(folder: Path, metric: str, rows: Sequence[Row], interrupted: bool) -> SweepResult:
    """Finished trials by their score, then failed ones, then those that wait; equal ones in the order of the trials."""
    sign = 1 if metric == "loss" else -1

    def position(row: Row) -> tuple[int, float]:
        if row.scores is not None:
            score = sign * row.scores[metric]
            return 0, score if math.isfinite(score) else math.inf
        return (1 if row.status == "failed" else 2), 0.0

    return SweepResult(folder, metric, tuple(sorted(rows, key=position)), interrupted)
