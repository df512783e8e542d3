"""A sweep: one recipe trained with many values of chosen keys, and one table. Resumable, and open to several processes.

    sweep folder/
      sweep.json                       the table: each trial with its values, scores and, if it failed, the sentence
      sweep.db                         Optuna's studies, one for each search space and metric
      hidden_size=256,dropout=0.3/     a run folder like any other, named after the trial's values

Optuna chooses the trials and keeps how they ended. A trial is held by a lock file, which the system frees when its
process dies: the next process that asks for work resumes such a trial.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import yaml
from filelock import FileLock, Timeout

from showtell.counter_rng import key_of
from showtell.errors import MissingDependencyError, RecipeError, TrainingError, UsageError, WeightsError, nearest
from showtell.files import read_log, write_json
from showtell.scores import numbers, selection_metrics, validation_numbers
from showtell.training.console import TrainingConsole
from showtell.training.loop import train
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import refuse
from showtell.training.recipe_loading import load_recipe, parse_yaml

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise MissingDependencyError(
        'A sweep needs Optuna, which is not installed; install it with pip install "showtell[sweep]".'
    ) from error

optuna.logging.set_verbosity(optuna.logging.ERROR)
SAMPLERS = ("grid", "random", "tpe", "gp")
LEARNING_SAMPLERS = ("tpe", "gp")  # choose a trial by those that ended
# What is wrong with a trial's own values. Any other error, such as a missing dataset, would stop every trial alike.
TRIAL_ERRORS = (RecipeError, TrainingError, WeightsError, torch.OutOfMemoryError)
Space = Mapping[str, BaseDistribution]  # of the keys of a recipe; the values of a list are YAML text
_RANGE = re.compile(r"(log|uniform)\((.*)\.\.(.*)\)")
Status = Literal["waiting", "finished", "failed"]
_STATUS: dict[TrialState, Status] = {TrialState.COMPLETE: "finished", TrialState.FAIL: "failed"}


@dataclass(frozen=True)
class Row:
    """A trial in the table: how it ended, or that it has not yet."""

    run: str  # its folder within the sweep's
    values: dict[str, Any]
    status: Status = "waiting"
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
        RecipeError: a trial's recipe has a problem. No trial starts.
    """
    if metric not in (metrics := ("loss", *selection_metrics())):
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
    planned = [] if sampler in LEARNING_SAMPLERS else grid(space) if trials is None else _draw(space, trials, seed)
    _check_recipes(recipe, space, planned or _extremes(space), metric)
    folder.mkdir(parents=True, exist_ok=True)
    work = _Sweep(recipe, folder, space, metric)
    work.enqueue(planned, retry=retry)
    console, count = TrainingConsole(quiet), len(planned) if trials is None else trials
    while claim := work.claim(sampler, seed, count):
        trial, lock = claim
        console.say(f"trial {trial.number + 1}, {count} in all: {work.name_of(trial)}")
        with lock:
            if not work.train(trial, console, quiet=quiet):
                return work.table(interrupted=True)
        write_json(folder / "sweep.json", work.table().to_json(), indent=2)
    return work.table()


# ---- the search space


def parse_space(axes: Sequence[str]) -> dict[str, BaseDistribution]:
    """The search space of a command line.

    Raises:
        UsageError: there is none, an axis cannot be read, or a key is given twice.
    """
    if not axes:
        raise UsageError("A sweep needs a key with values, such as model.hidden_size=256,512.")
    space: dict[str, BaseDistribution] = {}
    for axis in axes:
        key, equals, given = axis.partition("=")
        if not equals or "." not in key or not given.strip():
            raise UsageError(f'"{axis}" is no key with values; write section.key=v1,v2 or section.key=log(1e-4..1e-2).')
        if key in space:
            raise UsageError(f"{key} is given twice; list all its values in one place.")
        space[key] = _distribution(axis, given.strip())
    return space


def _distribution(axis: str, given: str) -> BaseDistribution:
    if given.startswith(("log(", "uniform(")):
        return _range(axis, given)
    try:
        values = parse_yaml(f"[{given}]")
    except ValueError as error:
        raise UsageError(f'The values in "{axis}" are not valid YAML ({error}); put each in quotes.') from error
    return CategoricalDistribution(list(dict.fromkeys(in_yaml(value) for value in values)))


def _range(axis: str, given: str) -> BaseDistribution:
    with suppress(ValueError):
        kind, *ends = match.groups() if (match := _RANGE.fullmatch(given)) else ("",)
        low, high = map(float, ends)
        if low < high and math.isfinite(high - low) and (low > 0 or kind == "uniform"):
            if all(re.fullmatch(r"\s*[+-]?\d+\s*", end) for end in ends):
                return IntDistribution(int(low), int(high), log=kind == "log")
            return FloatDistribution(low, high, log=kind == "log")
    raise UsageError(
        f'The range in "{axis}" has to go from a number to a greater one, with log from a number above 0: '
        "log(1e-4..1e-2)."
    )


def values_of(space: Space, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a recipe's keys that a trial's parameters stand for; of a range with three digits."""

    def value_of(distribution: BaseDistribution, parameter: Any) -> Any:
        if isinstance(distribution, FloatDistribution):
            return min(max(float(f"{parameter:.3g}"), distribution.low), distribution.high)
        return parse_yaml(parameter) if isinstance(distribution, CategoricalDistribution) else parameter

    return {key: value_of(distribution, parameters[key]) for key, distribution in space.items()}


def grid(space: Space) -> list[dict[str, Any]]:
    """Parameters of every combination, the last key changing fastest.

    Raises:
        UsageError: a key has a range.
    """
    for key, distribution in space.items():
        if not isinstance(distribution, CategoricalDistribution):
            raise UsageError(
                f"{key} is a range, from which --trials N takes values; without it, list values with commas."
            )
    choices = [distribution.choices for distribution in space.values()]  # type: ignore[attr-defined]
    return [dict(zip(space, combination, strict=True)) for combination in product(*choices)]


def _draw(space: Space, trials: int, seed: int) -> list[dict[str, Any]]:
    """Parameters of that many different random combinations. A larger number begins with the same ones.

    Raises:
        UsageError: there are fewer combinations.
    """
    if all(isinstance(distribution, CategoricalDistribution) for distribution in space.values()):
        combinations = len(grid(space))
        if trials > combinations:
            raise UsageError(
                f"--trials {trials} is more than the {combinations} combinations; leave it out to train them all."
            )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    drawn: dict[str, dict[str, Any]] = {}
    while len(drawn) < trials:
        parameters = study.ask(dict(space)).params
        drawn.setdefault(trial_name(values_of(space, parameters)), parameters)
    return list(drawn.values())


def _extremes(space: Space) -> list[dict[str, Any]]:
    """A few trials in which each value of a list and both ends of each range occur."""
    ends = [getattr(axis, "choices", None) or (axis.low, axis.high) for axis in space.values()]  # type: ignore[attr-defined]
    return [
        {key: values[min(number, len(values) - 1)] for key, values in zip(space, ends, strict=True)}
        for number in range(max(map(len, ends)))
    ]


def in_yaml(value: Any) -> str:
    """A value as it stands behind the equals sign of an override."""
    return yaml.safe_dump([value], default_flow_style=True, width=math.inf, allow_unicode=True).strip()[1:-1]


def trial_name(values: Mapping[str, Any]) -> str:
    """A folder name that shows the values; where a file system could not hold them, with a fingerprint."""
    ends = [key.rpartition(".")[2] for key in values]
    names = ends if len(set(ends)) == len(ends) else list(values)
    text = ",".join(f"{name}={in_yaml(value)}" for name, value in zip(names, values.values(), strict=True))
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    if plain == text and len(text) <= 100:
        return text
    return f"{plain[:90]}-{key_of(text):016x}"[:110]


# ---- trials


def _load(recipe: Path, values: Mapping[str, Any]) -> Recipe:
    return load_recipe(recipe, [f"{key}={in_yaml(value)}" for key, value in values.items()])


def _check_recipes(recipe: Path, space: Space, trials: Sequence[Mapping[str, Any]], metric: str) -> None:
    """Make sure that every trial can begin and that its validation has the metric.

    Raises:
        RecipeError: with the problems of all trials together.
        UsageError: the metric is not computed in validation.
    """
    problems: dict[str, None] = {}
    for parameters in trials:
        try:
            loaded = _load(recipe, values_of(space, parameters))
        except RecipeError as error:
            first, *listed = str(error).split("\n  ")
            problems |= dict.fromkeys(listed or [first])
            continue
        if loaded.data.validation_split is None:
            raise RecipeError("data.validation_split is null, so trials would have no score; name a split.")
        if metric not in ("loss", *validation_numbers(loaded.training.selection_metric)):
            raise UsageError(
                f"{numbers()[metric].title} is counted in validation only where it selects; add "
                f"training.selection_metric={metric}."
            )
    refuse(problems, str(recipe), " in this sweep, so no trial was started")


class _Sweep:
    """The trials of a search space in a folder; every change of the study is made under a lock."""

    def __init__(self, recipe: Path, folder: Path, space: Space, metric: str) -> None:
        self.recipe, self.folder, self.space, self.metric = recipe, folder, dict(space), metric
        self.lock = FileLock(folder / ".sweep.lock")
        axes = (f"{key}={distribution!r}" for key, distribution in space.items())
        with self.lock:
            self.study = optuna.create_study(
                storage=f"sqlite:///{folder / 'sweep.db'}",
                study_name=f"{metric} {key_of(*axes):016x}",
                direction="minimize" if metric == "loss" else "maximize",
                load_if_exists=True,
            )

    def values_of(self, trial: FrozenTrial) -> dict[str, Any]:
        """What a trial changes of the recipe."""
        return values_of(self.space, trial.params or trial.system_attrs["fixed_params"])

    def name_of(self, trial: FrozenTrial) -> str:
        """The name of a trial's folder."""
        return trial_name(self.values_of(trial))

    def trials(self) -> dict[str, FrozenTrial]:
        """The trials by name, of those with equal values the last one, in the order in which they were chosen."""
        return {self.name_of(trial): trial for trial in self.study.get_trials(deepcopy=False)}

    def enqueue(self, planned: Sequence[dict[str, Any]], *, retry: bool) -> None:
        """Let the planned trials wait that do not exist yet, and with `retry` those that failed."""
        with self.lock:
            known = self.trials()
            failed = [trial.params for trial in known.values() if retry and trial.state == TrialState.FAIL]
            new = [parameters for parameters in planned if trial_name(values_of(self.space, parameters)) not in known]
            for parameters in [*new, *failed]:
                self.study.enqueue_trial(parameters)

    def claim(self, sampler: str, seed: int, count: int) -> tuple[FrozenTrial, FileLock] | None:
        """A trial to train, with its lock held: one whose process died, one that waits, or one that a sampler chooses.

        Returns:
            None if there are no more, of a sampler that learns `count` in all.
        """
        with self.lock:
            while True:
                trials = self.trials()
                for name, trial in trials.items():
                    lock = FileLock(self.folder / f".{name}.lock")
                    with suppress(Timeout):
                        if trial.state == TrialState.RUNNING:
                            lock.acquire(timeout=0)
                            return trial, lock
                is_any_waiting = any(trial.state == TrialState.WAITING for trial in trials.values())
                if not is_any_waiting and (sampler not in LEARNING_SAMPLERS or len(trials) >= count):
                    return None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of Optuna's experimental parts, and of scipy
                    self.study.sampler = _make_sampler(sampler, key_of(seed, len(self.study.trials)) % 2**32)
                    self.study.ask(self.space)

    def train(self, trial: FrozenTrial, console: TrainingConsole, *, quiet: bool) -> bool:
        """Train a claimed trial to its end, from where it was, and keep how it ended; false if a person stopped it."""
        try:
            run = self.folder / self.name_of(trial)
            result = train(_load(self.recipe, self.values_of(trial)), run, resume=True, quiet=quiet)
        except TRIAL_ERRORS as error:
            console.say(f"trial {trial.number + 1} failed: {error}")
            return self._end(trial, TrialState.FAIL, error=str(error))
        if result.interrupted:
            return False
        log, epoch = read_log(run / "log.jsonl"), result.best_epoch
        scores = next(line["validation"] for line in log if "validation" in line and line["epoch"] == epoch)
        return self._end(trial, TrialState.COMPLETE, scores[self.metric], epoch=epoch, scores=scores)

    def _end(self, trial: FrozenTrial, state: TrialState, score: float | None = None, **row: Any) -> bool:
        with self.lock:
            for name, value in row.items():
                self.study._storage.set_trial_user_attr(trial._trial_id, name, value)
            self.study.tell(trial.number, score, state=state)
        return True

    def table(self, *, interrupted: bool = False) -> SweepResult:
        """Finished trials by their score, then failed ones, then those that wait; equal ones in the order of choice."""
        sign = 1 if self.metric == "loss" else -1

        def position(trial: FrozenTrial) -> tuple[int, float]:
            if trial.value is not None:
                return 0, sign * trial.value
            return (1 if trial.state == TrialState.FAIL else 2), 0.0

        rows = [
            Row(name, self.values_of(trial), _STATUS.get(trial.state, "waiting"), **trial.user_attrs)
            for name, trial in sorted(self.trials().items(), key=lambda item: position(item[1]))
        ]
        return SweepResult(self.folder, self.metric, tuple(rows), interrupted)


def _make_sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed)
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    return optuna.samplers.RandomSampler(seed=seed)
