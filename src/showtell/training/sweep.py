"""A sweep: one recipe trained with many values of chosen keys, and one table. The same command resumes it.

sweep folder/
  sweep.json                       the table: each trial with its values, and its scores or its error
  sweep.db                         Optuna's study of each search space: which trials, and how they ended
  hidden_size=256,dropout=0.3/     a run folder like any other, named after the trial's values
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from showtell.counter_rng import key_of
from showtell.errors import MissingDependencyError, RecipeError, TrainingError, UsageError, WeightsError, nearest
from showtell.files import read_log, write_json
from showtell.processes import lock_folder
from showtell.training.console import TrainingConsole
from showtell.training.loop import train
from showtell.training.recipe import Recipe
from showtell.training.recipe_loading import as_yaml, load_recipe, parse_yaml

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState
except ImportError as error:
    raise MissingDependencyError(
        'A sweep needs Optuna, which is not installed; install it with pip install "showtell[sweep]".'
    ) from error

optuna.logging.set_verbosity(optuna.logging.ERROR)
SAMPLERS = {"random": optuna.samplers.RandomSampler, "tpe": optuna.samplers.TPESampler}
# What is wrong with a trial's own values. Any other error, such as a missing dataset, would stop every trial alike.
TRIAL_ERRORS = (RecipeError, TrainingError, WeightsError, torch.OutOfMemoryError)
Space = dict[str, BaseDistribution]  # of the keys of a recipe; the values of a list are YAML text


@dataclass(frozen=True)
class Row:
    """A trial in the table; without scores and error it has not ended."""

    run: str  # its folder within the sweep's
    values: dict[str, Any]
    epoch: int | None = None  # that `best/` is from
    scores: dict[str, float] | None = None  # validation at that epoch
    error: str | None = None  # why it failed


@dataclass(frozen=True)
class SweepResult:
    """All trials, the best first, then those that failed, then those that have not ended."""

    folder: Path
    metric: str
    rows: tuple[Row, ...]
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {"metric": self.metric, "trials": [asdict(row) for row in self.rows]}


def sweep(
    recipe: Path,
    axes: Sequence[str],
    out: Path | None = None,
    *,
    trials: int | None = None,
    sampler: str = "random",
    quiet: bool = False,
) -> SweepResult:
    """Train a recipe once for each trial; trials are ordered by its `training.selection_metric`.

    Args:
        recipe: a YAML file, or the name of a recipe of showtell.
        axes: "section.key=v1,v2" each, the values in YAML, or a range, "section.key=log(1e-4..1e-2)" or with uniform.
        out: the folder; None is runs/ and the recipe's name with -sweep.
        trials: number of trials; None trains every combination.
        sampler: how that many are chosen, one of `SAMPLERS`.
        quiet: show nothing.

    Raises:
        UsageError: an axis that cannot be read, a range without `trials`, or an unknown sampler.
        RecipeError: a trial's recipe has a problem. No trial starts.
    """
    if sampler not in SAMPLERS:
        raise UsageError(f'There is no sampler "{sampler}"; {nearest(sampler, (*SAMPLERS,))}.')
    space = parse_space(axes)
    folder = out or Path("runs") / f"{recipe.parent.name}-{recipe.stem}-sweep"
    if (folder / "recipe.yaml").exists():
        raise UsageError(f"{folder} holds a run; choose another --out for the sweep.")
    combinations = _grid(space) if trials is None else []
    ends = [{key: _ends(distribution)[end] for key, distribution in space.items()} for end in (0, -1)]
    metric = _check_recipes(recipe, combinations or ends)
    console, count = TrainingConsole(quiet), trials or len(combinations)
    with lock_folder(folder, "sweeping in", "another --out"):
        study = optuna.create_study(
            storage=f"sqlite:///{folder / 'sweep.db'}",
            study_name=f"{key_of(*(f'{key}={distribution!r}' for key, distribution in space.items())):016x}",
            direction="maximize",
            load_if_exists=True,
        )
        for parameters in combinations:
            study.enqueue_trial(parameters, skip_if_exists=True)
        for number in range(count):
            if number == len(study.trials) or study.trials[number].state == TrialState.WAITING:
                study.sampler = SAMPLERS[sampler](seed=key_of(number) % 2**32)  # what it draws depends on no other call
                study.ask(space)  # the first that waits, or a new one
            trial = study.trials[number]
            if trial.state.is_finished():
                continue
            values = _values(trial.params)
            console.say(f"trial {number + 1} of {count}: {trial_name(values)}")
            row = _train(recipe, folder, values, quiet=quiet)
            if row is None:
                return _table(study, folder, metric, interrupted=True)
            if row.error:
                console.say(f"failed: {row.error}")
            for name in ("epoch", "scores", "error"):
                study._storage.set_trial_user_attr(trial._trial_id, name, getattr(row, name))
            if row.scores is None:
                study.tell(number, state=TrialState.FAIL)
            else:
                study.tell(number, row.scores[metric])
            write_json(folder / "sweep.json", _table(study, folder, metric).to_json(), indent=2)
        return _table(study, folder, metric)


# ---- the search space


def parse_space(axes: Sequence[str]) -> Space:
    """The search space of a command line.

    Raises:
        UsageError: there is none, an axis cannot be read, or a key is given twice.
    """
    if not axes:
        raise UsageError("A sweep needs a key with values, such as model.hidden_size=256,512.")
    space: Space = {}
    for axis in axes:
        key, _, given = axis.partition("=")
        if key in space:
            raise UsageError(f"{key} is given twice; list all its values in one place.")
        try:
            if "." not in key or not given.strip():
                raise ValueError("no key with values")
            space[key] = _distribution(given)
        except ValueError as error:
            raise UsageError(
                f'"{axis}" cannot be read ({error}); write section.key=v1,v2 with YAML values, or a range from a '
                "number to a greater one, section.key=log(1e-4..1e-2) or section.key=uniform(0..1)."
            ) from error
    return space


def _distribution(given: str) -> BaseDistribution:
    """Values with commas, or a range: of whole numbers if both its ends are."""
    if match := re.fullmatch(r"(log|uniform)\((.*)\.\.(.*)\)", given):
        kind, low, high = match.groups()
        if low.strip().isdigit() and high.strip().isdigit():
            return IntDistribution(int(low), int(high), log=kind == "log")
        return FloatDistribution(float(low), float(high), log=kind == "log")
    return CategoricalDistribution(list(dict.fromkeys(map(as_yaml, parse_yaml(f"[{given}]")))))


def _values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe's keys that a trial's parameters stand for; those of a range have three digits."""
    return {
        key: float(f"{value:.3g}") if isinstance(value, float) else parse_yaml(str(value))
        for key, value in parameters.items()
    }


def _grid(space: Space) -> list[dict[str, Any]]:
    """Parameters of every combination, the last key changing fastest.

    Raises:
        UsageError: a key has a range.
    """
    for key, distribution in space.items():
        if not isinstance(distribution, CategoricalDistribution):
            raise UsageError(
                f"{key} is a range, from which --trials N takes values; without it, list values with commas."
            )
    return [dict(zip(space, combination, strict=True)) for combination in product(*map(_ends, space.values()))]


def _ends(distribution: Any) -> tuple[Any, ...]:
    return distribution.choices if hasattr(distribution, "choices") else (distribution.low, distribution.high)


def trial_name(values: Mapping[str, Any]) -> str:
    """A folder name that shows the values; where a file system could not hold them, with a fingerprint."""
    ends = [key.rpartition(".")[2] for key in values]
    names = ends if len(set(ends)) == len(ends) else list(values)
    text = ",".join(f"{name}={as_yaml(value)}" for name, value in zip(names, values.values(), strict=True))
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    return text if plain == text and len(text) <= 100 else f"{plain[:90]}-{key_of(text):016x}"


# ---- trials


def _load(recipe: Path, values: Mapping[str, Any]) -> Recipe:
    return load_recipe(recipe, [f"{key}={as_yaml(value)}" for key, value in values.items()])


def _check_recipes(recipe: Path, trials: Sequence[Mapping[str, Any]]) -> str:
    """Make sure that every trial can begin; returns the score by which they are ordered.

    Raises:
        RecipeError: the recipe of a trial is wrong, or has no validation split.
    """
    for parameters in trials:
        values = _values(parameters)
        try:
            loaded = _load(recipe, values)
        except RecipeError as error:
            raise RecipeError(f"No trial was started: with {trial_name(values)}, {error}") from error
        if loaded.data.validation_split is None:
            raise RecipeError("data.validation_split is null, so trials would have no score; name a split.")
    return loaded.training.selection_metric


def _train(recipe: Path, folder: Path, values: dict[str, Any], *, quiet: bool) -> Row | None:
    """Train a trial to its end, from where it was; None if a person stopped it."""
    name = trial_name(values)
    try:
        result = train(_load(recipe, values), folder / name, resume=True, quiet=quiet)
    except TRIAL_ERRORS as error:
        return Row(name, values, error=str(error))
    if result.interrupted:
        return None
    log, epoch = read_log(folder / name / "log.jsonl"), result.best_epoch
    scores = next(line["validation"] for line in log if "validation" in line and line["epoch"] == epoch)
    return Row(name, values, epoch, scores)


def _table(study: optuna.Study, folder: Path, metric: str, *, interrupted: bool = False) -> SweepResult:
    rows: dict[str, Row] = {}  # by name, since a sampler may draw the same values twice; they are trained once
    for trial in study.get_trials(deepcopy=False):
        values = _values(trial.params or trial.system_attrs["fixed_params"])
        rows[trial_name(values)] = Row(trial_name(values), values, **trial.user_attrs)

    def position(row: Row) -> tuple[int, float]:
        return (0, -row.scores[metric]) if row.scores else (1 if row.error else 2, 0.0)

    return SweepResult(folder, metric, tuple(sorted(rows.values(), key=position)), interrupted)
