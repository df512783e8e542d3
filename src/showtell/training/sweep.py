"""A sweep: one recipe trained with many values of chosen keys, every combination or random ones; resumable anywhere.

    sweep folder/
      sweep.json                       the table: each trial with its values, scores and, if it failed, the sentence
      hidden_size=256,dropout=0.3/     a run folder like any other, and when the trial has ended:
        trial.json                     its row of the table, and its recipe

A trial's folder is named after its values, and the values of a random trial are a function of (seed, draw, key). So the
same call goes on where it was killed, a larger one (more values, a greater `random`) trains what is new alone, and
nothing but the folders has to be remembered.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import yaml

from showtell.counter_rng import key_of
from showtell.errors import RecipeError, TrainingError, UsageError, WeightsError, nearest, summarise
from showtell.files import read_json, read_log, write_json
from showtell.scores import numbers, selection_metrics, validation_numbers
from showtell.training.console import TrainingConsole
from showtell.training.loop import train
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import make_recipe
from showtell.training.recipe_loading import load_recipe
from showtell.training.run_folder import changes

# What is wrong with a trial's own values. Any other error, such as a missing dataset, would stop every trial alike.
OF_A_TRIAL = (RecipeError, TrainingError, WeightsError, torch.OutOfMemoryError)
_RANGE = re.compile(r"(log|uniform)\((.*)\)")


@dataclass(frozen=True)
class Values:
    """A key with values to choose from."""

    key: str
    values: tuple[Any, ...]

    def draw(self, chance: random.Random) -> Any:
        """Any of them, each as likely."""
        return chance.choice(self.values)


@dataclass(frozen=True)
class Range:
    """A key with a range: uniform, or uniform in the logarithm."""

    key: str
    low: float
    high: float
    logarithmic: bool
    whole: bool  # whole numbers only

    def draw(self, chance: random.Random) -> Any:
        """A number from the range, to three digits, which is finer than any search can tell apart."""
        if self.logarithmic:
            number = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        else:
            number = chance.uniform(self.low, self.high)
        number = min(max(float(f"{number:.3g}"), self.low), self.high)
        return round(number) if self.whole else number


@dataclass(frozen=True)
class Trial:
    """One combination of values."""

    name: str  # of its folder
    values: dict[str, Any]
    recipe: Recipe


@dataclass(frozen=True)
class Row:
    """How a trial ended, or that it has not yet."""

    run: str  # its folder within the sweep's
    values: dict[str, Any]
    status: Literal["waiting", "finished", "failed"] = "waiting"
    epoch: int | None = None  # that `best/` is from
    scores: dict[str, float] | None = None  # validation at that epoch
    error: str | None = None  # why it failed


@dataclass(frozen=True)
class Sweep:
    """All trials, the best first, then those that failed or wait."""

    folder: Path
    metric: str
    rows: tuple[Row, ...]
    interrupted: bool = False

    def to_json(self) -> dict[str, Any]:
        """What `sweep.json` holds."""
        return {"metric": self.metric, "trials": [vars(row) for row in self.rows]}


def sweep(
    recipe: Path,
    axes: Sequence[str],
    out: Path | None = None,
    *,
    draws: int | None = None,
    seed: int = 0,
    metric: str = "cider",
    retry: bool = False,
    quiet: bool = False,
) -> Sweep:
    """Train a recipe once for each combination of values; what has ended is not trained again.

    Args:
        recipe: a YAML file.
        axes: "section.key=v1,v2" each, the values in YAML, or a range, "section.key=log(1e-4..1e-2)" or with uniform.
        out: the folder; None is runs/ and the recipe's name with -sweep.
        draws: so many random combinations; None: every one.
        seed: of the draws.
        metric: the validation score by which trials are ordered, "loss" or one that can select the best weights.
        retry: train again what failed.
        quiet: show nothing.

    Raises:
        UsageError: an axis that cannot be read, a range without `draws`, or an unknown metric.
        RecipeError: any trial's recipe has a problem, or a trial in the folder was of another recipe. No trial starts.
    """
    metrics = ("loss", *selection_metrics())
    if metric not in metrics:
        raise UsageError(f'A sweep cannot order trials by "{metric}"; {nearest(metric, metrics)}.')
    parsed = [parse_axis(axis) for axis in axes]
    if not parsed:
        raise UsageError("A sweep needs a key with values, such as model.hidden_size=256,512.")
    repeated = [axis.key for place, axis in enumerate(parsed) if axis.key in {other.key for other in parsed[:place]}]
    if repeated:
        raise UsageError(f"{repeated[0]} is given twice; list all its values in one place.")
    folder = out or Path("runs") / f"{recipe.parent.name}-{recipe.stem}-sweep"
    if (folder / "recipe.yaml").exists():
        raise UsageError(f"{folder} holds a run; choose another --out for the sweep.")
    combinations = every_combination(parsed) if draws is None else random_combinations(parsed, draws, seed)
    trials = _checked_trials(recipe, combinations)
    counted = [validation_numbers(trial.recipe.training.selection_metric) for trial in trials]
    if metric != "loss" and any(metric not in names for names in counted):
        raise UsageError(
            f"{numbers()[metric].title} is counted in validation only where it selects; add "
            f"training.selection_metric={metric}."
        )
    rows = [_ended(folder, trial, retry) for trial in trials]
    console = TrainingConsole(quiet)
    result = _ordered(folder, metric, rows)
    for place, trial in enumerate(trials):
        if rows[place].status != "waiting":
            continue
        console.say(f"trial {place + 1} of {len(trials)}: {trial.name}")
        ended = _run(folder, trial, quiet)
        if ended is None:
            return _ordered(folder, metric, rows, interrupted=True)
        rows[place] = ended
        result = _ordered(folder, metric, rows)
        write_json(folder / "sweep.json", result.to_json(), indent=2)
        if ended.error:
            console.say(f"trial {place + 1} failed: {ended.error}")
    write_json(folder / "sweep.json", result.to_json(), indent=2)
    return result


# ---- which trials


def parse_axis(text: str) -> Values | Range:
    """Read "section.key=v1,v2" or "section.key=log(low..high)".

    Raises:
        UsageError: it is neither.
    """
    key, equals, given = text.partition("=")
    if not equals or "." not in key or not given.strip():
        raise UsageError(f'"{text}" is no key with values; write section.key=v1,v2 or section.key=log(1e-4..1e-2).')
    if found := _RANGE.fullmatch(given.strip()):
        return _range(key, found[1] == "log", found[2], text)
    try:
        values = yaml.safe_load(f"[{given}]")
    except yaml.YAMLError as error:
        raise UsageError(f'The values in "{text}" are not valid YAML; put each in quotes.') from error
    return Values(key, tuple(values))


def _range(key: str, logarithmic: bool, bounds: str, text: str) -> Range:
    ends = bounds.split("..")
    try:
        low, high = (float(end) for end in ends)
    except ValueError as error:
        raise UsageError(f'The range in "{text}" needs two numbers: {key}=log(1e-4..1e-2).') from error
    if not (low < high and math.isfinite(high - low)) or (logarithmic and low <= 0):
        above = " above 0" if logarithmic else ""
        raise UsageError(f'The range in "{text}" has to go from a number{above} to a greater one.')
    whole = all(re.fullmatch(r"\s*[+-]?\d+\s*", end) for end in ends)
    return Range(key, low, high, logarithmic, whole)


def every_combination(axes: Sequence[Values | Range]) -> list[dict[str, Any]]:
    """The grid, the last key changing fastest.

    Raises:
        UsageError: an axis is a range.
    """
    for axis in axes:
        if isinstance(axis, Range):
            raise UsageError(
                f"{axis.key} is a range, from which --random N draws; without it, list values with commas."
            )
    listed = [axis.values for axis in axes if isinstance(axis, Values)]
    return [dict(zip([axis.key for axis in axes], values, strict=True)) for values in product(*listed)]


def random_combinations(axes: Sequence[Values | Range], draws: int, seed: int) -> list[dict[str, Any]]:
    """So many different combinations. More draws begin with the same ones.

    Raises:
        UsageError: there are not so many.
    """
    if not any(isinstance(axis, Range) for axis in axes):
        grid = len({_name(values) for values in every_combination(axes)})
        if draws > grid:
            raise UsageError(f"--random {draws} is more than the {grid} combinations; leave it out to train them all.")
    found: dict[str, dict[str, Any]] = {}
    draw = 0
    while len(found) < draws:
        values = {axis.key: axis.draw(random.Random(key_of(seed, draw, axis.key))) for axis in axes}
        found.setdefault(_name(values), values)
        draw += 1
    return list(found.values())


def in_yaml(value: Any) -> str:
    """A value as it stands behind the equals sign of an override."""
    return yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]


def _name(values: Mapping[str, Any]) -> str:
    """A folder name that says the values; where a file system could not hold them, with a fingerprint."""
    ends = [key.rpartition(".")[2] for key in values]
    names = ends if len(set(ends)) == len(ends) else list(values)
    said = ",".join(f"{name}={in_yaml(value)}" for name, value in zip(names, values.values(), strict=True))
    plain = re.sub(r"[^\w.=,+-]+", "_", said)
    if plain == said and len(said) <= 100:
        return said
    return f"{plain[:90]}-{key_of(said):016x}"[:110]


def _checked_trials(recipe: Path, combinations: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """The trials with their recipes, each recipe once.

    Raises:
        RecipeError: with the problems of all trials together.
    """
    trials: dict[str, Trial] = {}
    problems: dict[str, None] = {}
    for values in combinations:
        try:
            loaded = load_recipe(recipe, [f"{key}={in_yaml(value)}" for key, value in values.items()])
        except RecipeError as error:
            first, *listed = str(error).split("\n  ")
            problems |= dict.fromkeys(listed or [first])
            continue
        trials.setdefault(loaded.model_dump_json(), Trial(_name(values), dict(values), loaded))
    if problems:
        counted = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError(
            f"{recipe} has {counted} in this sweep, so no trial was started:"
            + "".join(f"\n  {problem}" for problem in problems)
        )
    found = list(trials.values())
    if any(trial.recipe.data.validation_split is None for trial in found):
        raise RecipeError("data.validation_split is null, so trials would have no score; name a split.")
    if len({trial.recipe.training.mixed_precision for trial in found}) > 1:
        raise RecipeError(
            "training.mixed_precision has to be the same in all trials of a sweep; make a sweep for each."
        )
    return found


# ---- running them


def _ended(folder: Path, trial: Trial, retry: bool) -> Row:
    """The row of a trial that has ended before, or one that waits."""
    file = folder / trial.name / "trial.json"
    if not file.exists():
        return Row(trial.name, trial.values)
    kept = read_json(file)
    if changed := changes(make_recipe(kept.pop("recipe"), str(file)), trial.recipe):
        raise RecipeError(
            f"The trial {file.parent} was of another recipe: {summarise(changed)}; choose another --out, or delete it."
        )
    if retry and kept["status"] == "failed":
        return Row(trial.name, trial.values)
    return Row(**{**kept, "run": trial.name, "values": trial.values})


def _run(folder: Path, trial: Trial, quiet: bool) -> Row | None:
    """Train a trial to its end, from where it was; None if a person stopped it."""
    run = folder / trial.name
    try:
        result = train(trial.recipe, run, resume=True, quiet=quiet)
    except OF_A_TRIAL as error:
        row = Row(trial.name, trial.values, "failed", error=str(error))
    else:
        if result.interrupted:
            return None
        row = Row(trial.name, trial.values, "finished", result.best_epoch, _validation(run, result.best_epoch))
    write_json(run / "trial.json", {**vars(row), "recipe": trial.recipe.model_dump(mode="json")}, indent=2)
    return row


def _validation(run: Path, epoch: int | None) -> dict[str, float]:
    """The validation scores of an epoch."""
    for line in read_log(run / "log.jsonl"):
        if "validation" in line and line["epoch"] == epoch:
            return dict(line["validation"])
    raise AssertionError(f"{run} has no validation of epoch {epoch}")


def _ordered(folder: Path, metric: str, rows: Sequence[Row], *, interrupted: bool = False) -> Sweep:
    """Finished trials by their score, then failed ones, then those that wait; equal ones in the order of the call."""
    sign = 1 if metric == "loss" else -1

    def place(row: Row) -> tuple[int, float]:
        if row.scores is not None:
            score = sign * row.scores[metric]
            return 0, score if math.isfinite(score) else math.inf
        return (1 if row.status == "failed" else 2), 0.0

    return Sweep(folder, metric, tuple(sorted(rows, key=place)), interrupted)
