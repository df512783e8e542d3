"""The search space of a sweep: keys of a recipe with values or ranges, as Optuna's distributions.

Values are YAML text there, which holds lists and nulls too; a number of a range is rounded to three digits, which is
finer than any search can tell apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import yaml

from showtell.counter_rng import key_of
from showtell.errors import MissingDependencyError, UsageError

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
except ImportError as error:
    raise MissingDependencyError(
        'A sweep needs Optuna, which is not installed; install it with pip install "showtell[sweep]".'
    ) from error

Space = Mapping[str, BaseDistribution]
Parameters = Mapping[str, Any]  # as Optuna keeps them
_RANGE = re.compile(r"(log|uniform)\((.*)\)")


def parse_space(axes: Sequence[str]) -> dict[str, BaseDistribution]:
    """The search space of a command line.

    Raises:
        UsageError: there is none, one cannot be read, or a key is given twice.
    """
    if not axes:
        raise UsageError("A sweep needs a key with values, such as model.hidden_size=256,512.")
    space: dict[str, BaseDistribution] = {}
    for axis in axes:
        key, distribution = parse_axis(axis)
        if key in space:
            raise UsageError(f"{key} is given twice; list all its values in one place.")
        space[key] = distribution
    return space


def parse_axis(text: str) -> tuple[str, BaseDistribution]:
    """Read "section.key=v1,v2" or "section.key=log(low..high)".

    Raises:
        UsageError: it is neither.
    """
    key, equals, given = text.partition("=")
    if not equals or "." not in key or not given.strip():
        raise UsageError(f'"{text}" is no key with values; write section.key=v1,v2 or section.key=log(1e-4..1e-2).')
    if match := _RANGE.fullmatch(given.strip()):
        return key, _parse_range(key, match[1] == "log", match[2], text)
    try:
        values = yaml.safe_load(f"[{given}]")
    except yaml.YAMLError as error:
        raise UsageError(f'The values in "{text}" are not valid YAML; put each in quotes.') from error
    return key, CategoricalDistribution(list(dict.fromkeys(in_yaml(value) for value in values)))


def _parse_range(key: str, is_log: bool, bounds: str, text: str) -> BaseDistribution:
    ends = bounds.split("..")
    try:
        low, high = (float(end) for end in ends)
    except ValueError as error:
        raise UsageError(f'The range in "{text}" needs two numbers: {key}=log(1e-4..1e-2).') from error
    if not (low < high and math.isfinite(high - low)) or (is_log and low <= 0):
        above = " above 0" if is_log else ""
        raise UsageError(f'The range in "{text}" has to go from a number{above} to a greater one.')
    if all(re.fullmatch(r"\s*[+-]?\d+\s*", end) for end in ends):
        return IntDistribution(int(low), int(high), log=is_log)
    return FloatDistribution(low, high, log=is_log)


def values_of(space: Space, parameters: Parameters) -> dict[str, Any]:
    """The values of a recipe's keys that a trial's parameters stand for."""
    return {key: _value_of(distribution, parameters[key]) for key, distribution in space.items()}


def _value_of(distribution: BaseDistribution, parameter: Any) -> Any:
    if isinstance(distribution, FloatDistribution):
        return min(max(float(f"{parameter:.3g}"), distribution.low), distribution.high)
    return yaml.safe_load(parameter) if isinstance(distribution, CategoricalDistribution) else parameter


def parameters_of(space: Space, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The parameters that stand for values; None if the values are not in the space."""
    parameters = {}
    for key, distribution in space.items():
        value = in_yaml(values[key]) if isinstance(distribution, CategoricalDistribution) else values[key]
        if isinstance(distribution, CategoricalDistribution):
            is_inside = value in distribution.choices
        else:
            assert isinstance(distribution, FloatDistribution | IntDistribution)
            is_inside = isinstance(value, int | float) and distribution.low <= value <= distribution.high
        if not is_inside:
            return None
        parameters[key] = value
    return parameters


def grid(space: Space) -> list[dict[str, Any]]:
    """Parameters of every combination, the last key changing fastest.

    Raises:
        UsageError: a key has a range.
    """
    choices = []
    for key, distribution in space.items():
        if not isinstance(distribution, CategoricalDistribution):
            raise UsageError(
                f"{key} is a range, from which --trials N takes values; without it, list values with commas."
            )
        choices.append(distribution.choices)
    return [dict(zip(space, combination, strict=True)) for combination in product(*choices)]


def random_trials(space: Space, trials: int, seed: int) -> list[dict[str, Any]]:
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
    study = optuna.create_study()
    drawn: dict[str, dict[str, Any]] = {}
    while len(drawn) < trials:
        study.sampler = optuna.samplers.RandomSampler(seed=trial_seed(seed, len(study.trials)))
        parameters = study.ask(dict(space)).params
        drawn.setdefault(trial_name(values_of(space, parameters)), parameters)
    return list(drawn.values())


def extremes(space: Space) -> list[dict[str, Any]]:
    """A few trials in which each value of a list and both ends of each range occur."""
    ends = [
        distribution.choices
        if isinstance(distribution, CategoricalDistribution)
        else (distribution.low, distribution.high)  # type: ignore[attr-defined]
        for distribution in space.values()
    ]
    longest = max(len(values) for values in ends)
    return [
        {key: values[min(number, len(values) - 1)] for key, values in zip(space, ends, strict=True)}
        for number in range(longest)
    ]


def trial_seed(seed: int, number: int) -> int:
    """The seed of a trial's random numbers."""
    return key_of(seed, number) % 2**32


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
