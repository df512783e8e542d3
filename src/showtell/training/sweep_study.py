"""The study of a sweep: Optuna's, in a SQLite file of the sweep's folder, so that several processes can work on one.

All changes are made under a lock file. A trial is claimed by another lock file, which the system frees when its process
dies: the next process that asks for work takes such a trial over.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from showtell.counter_rng import key_of
from showtell.errors import DataError, MissingDependencyError
from showtell.training.sweep_space import Parameters, trial_name, trial_seed, values_of

DATABASE = "sweep.db"
LEARNING_SAMPLERS = ("tpe", "gp")  # choose a trial by those that ended
_PENDING = (TrialState.WAITING, TrialState.RUNNING)

optuna.logging.set_verbosity(optuna.logging.ERROR)


@dataclass(frozen=True)
class Claim:
    """A trial that this process works on until `lock` is released."""

    number: int
    name: str  # of its folder
    values: dict[str, Any]
    lock: FileLock


class SweepStudy:
    """The trials of a search space: which wait, which run, and what they reached.

    Args:
        folder: of the sweep.
        space: its keys.
        metric: what the trials are chosen by.
        maximise: whether more of it is better.
        sampler: "grid", "random", "tpe" or "gp".
        seed: of the sampler.

    Raises:
        DataError: the study in the folder is damaged.
        MissingDependencyError: the sampler needs a package that is not installed.
    """

    def __init__(
        self,
        folder: Path,
        space: Mapping[str, BaseDistribution],
        *,
        metric: str,
        maximise: bool,
        sampler: str,
        seed: int,
    ) -> None:
        self._folder, self._space, self._sampler, self._seed = folder, dict(space), sampler, seed
        self._make_sampler(0)
        self._lock = FileLock(folder / ".sweep.lock")
        with self._lock, self._readable():
            storage = RDBStorage(f"sqlite:///{folder / DATABASE}", engine_kwargs={"connect_args": {"timeout": 120}})
            self._study = optuna.create_study(
                storage=storage,
                study_name=f"{metric} {key_of(*(f'{key}={value!r}' for key, value in self._space.items())):016x}",
                direction="maximize" if maximise else "minimize",
                load_if_exists=True,
            )

    def update(self, planned: Iterable[Parameters], ended: Mapping[str, tuple[Parameters, float | None]]) -> None:
        """Take over what has ended, and let the planned trials wait that have neither ended nor begun.

        Args:
            planned: parameters of trials.
            ended: the name, the parameters and the score of each trial that ended; None: it failed.
        """
        with self._lock, self._readable():
            known: set[str] = set()
            pending: set[str] = set()
            for trial in self._study.get_trials(deepcopy=False):
                values = self._values(trial)
                if values is not None:
                    (pending if trial.state in _PENDING else known).add(trial_name(values))
                elif trial.state == TrialState.RUNNING:  # its process died while they were drawn
                    self._study.tell(trial.number, state=TrialState.FAIL)
            for name, (parameters, score) in ended.items():
                if name not in known | pending:
                    state = TrialState.FAIL if score is None else TrialState.COMPLETE
                    self._study.add_trial(
                        optuna.create_trial(
                            state=state, value=score, params=dict(parameters), distributions=self._space
                        )
                    )
            for parameters in planned:
                name = trial_name(values_of(self._space, parameters))
                if name not in pending and name not in ended:
                    self._study.enqueue_trial(dict(parameters))

    def trials(self) -> dict[str, dict[str, Any]]:
        """The names and values of all trials, in the order in which they were chosen."""
        with self._readable():
            return {
                trial_name(values): values
                for trial in self._study.get_trials(deepcopy=False)
                if (values := self._values(trial)) is not None
            }

    def claim(self, trials: int | None) -> Claim | None:
        """A trial to train: one whose process died, one that waits, or a new one; None if there is nothing to do.

        Args:
            trials: number of trials of a sampler that learns; None: there are no others than those that wait.
        """
        with self._lock, self._readable():
            for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if claim := self._try_to_claim(trial.number, trial.params):
                    return claim
            while True:
                all_trials = self._study.get_trials(deepcopy=False)
                is_any_waiting = any(trial.state == TrialState.WAITING for trial in all_trials)
                chosen = sum(self._values(trial) is not None for trial in all_trials)  # some maybe more than once
                if not is_any_waiting and (trials is None or chosen >= trials):
                    return None
                self._study.sampler = self._make_sampler(len(all_trials))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of Optuna's experimental parts, and of scipy
                    asked = self._study.ask(self._space)
                if claim := self._try_to_claim(asked.number, asked.params):
                    return claim

    def end(self, claim: Claim, score: float | None) -> None:
        """Record how a claimed trial ended; None: it failed."""
        with self._lock, self._readable():
            if score is None:
                self._study.tell(claim.number, state=TrialState.FAIL)
            else:
                self._study.tell(claim.number, score)
        claim.lock.release()

    def _try_to_claim(self, number: int, parameters: Parameters) -> Claim | None:
        values = values_of(self._space, parameters)
        name = trial_name(values)
        lock = FileLock(self._folder / f".{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return Claim(number, name, values, lock)

    def _values(self, trial: FrozenTrial) -> dict[str, Any] | None:
        """The values of a trial; None if they were not all drawn."""
        parameters = trial.params or trial.system_attrs.get("fixed_params", {})
        return values_of(self._space, parameters) if parameters.keys() == self._space.keys() else None

    def _make_sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """The sampler of a trial, whose random numbers are a function of the seed and the trial's number."""
        seed = trial_seed(self._seed, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if self._sampler == "tpe":
                return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            if self._sampler == "gp":
                try:
                    return optuna.samplers.GPSampler(seed=seed)
                except ImportError as error:
                    raise MissingDependencyError(
                        "--sampler gp needs scipy, which is not installed; install it with "
                        'pip install "showtell[sweep]".'
                    ) from error
            return optuna.samplers.RandomSampler(seed=seed)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            reason = str(error.__cause__ or error).splitlines()[0]
            raise DataError(
                f"Cannot use {self._folder / DATABASE}: {reason}; delete it and run the same command again, which "
                "keeps every trial that has ended."
            ) from error
