"""The reward watchdog of a run under a reward: checks the start, warns, rolls back to the best weights, and stops.

A reward can be won without better captions: by more words, by ones that never end, by one safe caption for all. The
watchdog compares the captions of each validation with those of the starting weights, and

1. refuses to start from weights whose captions no reward could tell apart, and keeps the start as the first best, so
   that a run never ends with less than it began with;
2. reports each sign of harm in a sentence;
3. after `patience` consecutive validations with such a sign, or after a collapse, rolls back to the best weights
   with a lower learning rate; after `max_rollbacks` of them it stops.

It decides at validations, whose captions every process makes alike. The means of the steps between them (reward,
length) only warn, unless the objective declares that outside of their limits training has collapsed (`HealthRange` in
`objectives/contract.py`). What it remembers between steps is numbers, saved with the rest of `last/training/`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter

from showtell.captions import Caption
from showtell.errors import CheckpointError
from showtell.objectives.contract import HealthRange
from showtell.scores import diagnose
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.validation import Validation

WATCHED = ("reward", "greedy", "length")  # parts of an objective (`objectives/contract.py`)
REWARD_CHANGE = 0.2  # relative change of the mean reward that counts as a rise or a fall
WARNING_WINDOWS = 3  # consecutive windows with a sign before it is reported
MIN_CAPTIONS = 3  # captions by which a rate has to rise at least
IDENTICAL_INCREASE = 0.25  # of the share of captions that another image has too

_Sign = tuple[str, str]  # the observation; what it means and what to do

# Rates of captions of which an increase is harm: how such captions are described, and what to do.
_HARMFUL_RATES = {
    "bad_endings": (
        'end in a word like "a" or "with"',
        "the end of a caption has to be part of the reward and of the gradient",
    ),
    "repeats": (
        "say words twice in a row",
        "the reward counts words without their order; reward CIDEr-D, or add bleu_4 to it",
    ),
    "cut_off": (
        "are cut off before they end",
        "the end of a caption has to be part of the reward, or decoding.max_length is too small",
    ),
}


@dataclass(frozen=True)
class ValidationStats:
    """Statistics of the captions of a validation."""

    words: float  # mean length
    bad_endings: float  # shares of the captions, as in `scores/diagnostics.py`
    repeats: float
    cut_off: float
    identical: float

    @classmethod
    def from_captions(cls, captions: Mapping[str, Caption]) -> ValidationStats:
        """Statistics of the captions of a split."""
        rates = diagnose(caption.text for caption in captions.values())
        return cls(
            words=rates["mean_length"],
            bad_endings=rates["bad_endings"],
            repeats=rates["repeats"],
            cut_off=statistics.fmean(not caption.finished for caption in captions.values()),
            identical=rates["identical"],
        )


@dataclass(frozen=True)
class Decision:
    """What follows from a validation."""

    messages: tuple[tuple[str, str], ...] = ()  # kind ("warning", "harm", "rollback", "stop") and sentence
    is_harmful: bool = False  # such weights are never kept as the best
    rolls_back: bool = False
    stops: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)  # for the trackers


@dataclass
class _State:
    """What the watchdog remembers between steps."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    start: dict[str, float] | None = None  # the ValidationStats of the starting weights
    had_collapsed: bool = False  # at the start already
    bad_validations: int = 0  # consecutive validations with a sign of harm
    rollbacks: int = 0
    lr_factor: float = 1.0
    sums: dict[str, float] = field(default_factory=dict)  # of each part over the window that is open
    steps: dict[str, int] = field(default_factory=dict)  # of the window that have the part
    first_step: dict[str, float] = field(default_factory=dict)  # whose samples are the start's own
    first_window: dict[str, float] = field(default_factory=dict)  # means, which vary less than the first step
    last_window: dict[str, float] = field(default_factory=dict)  # means of the last one since a rollback
    warning_streaks: dict[str, int] = field(default_factory=dict)  # windows in a row with a sign; -1: was reported
    collapsed: dict[str, str] = field(default_factory=dict)  # observations of parts that did since the last validation


class RewardWatchdog:
    """Supervises one run.

    Args:
        config: its thresholds.
        selection_metric: the validation score that selects the best weights.
        reference_words: mean length of the validation captions.
        best: path of the best weights, for messages.
        health_ranges: of further parts of the objective.
    """

    def __init__(
        self,
        config: RewardWatchdogConfig,
        *,
        selection_metric: str,
        reference_words: float,
        best: str,
        health_ranges: Sequence[HealthRange] = (),
    ) -> None:
        self.config = config
        self.health_ranges = {health_range.name: health_range for health_range in health_ranges}
        self.selection_metric = selection_metric
        self.reference_words = reference_words
        self.best = best
        self._state = _State()

    @property
    def lr_factor(self) -> float:
        """What the learning rate is multiplied by."""
        return self._state.lr_factor

    def describe(self) -> str:
        """A sentence about what it will do."""
        patience, rollbacks = self.config.patience, self.config.max_rollbacks
        after = "a validation" if patience == 1 else f"{patience} validations in a row"
        times = "once" if rollbacks == 1 else f"{rollbacks} times"
        action = f"rolls back to the best weights, at most {times}, then stops" if rollbacks else "stops"
        return (
            f"a reward watchdog supervises this run: after {after} with a sign of harm it {action} "
            "(training.reward_watchdog; null turns it off)"
        )

    def state_dict(self) -> dict[str, Any]:
        """Its state, for JSON."""
        return asdict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned.

        Raises:
            ValueError: a key or a type is wrong.
        """
        self._state = TypeAdapter(_State).validate_json(json.dumps(state))

    # ---- before the first step

    def check_start(self, checkpoint: str, scores: Mapping[str, float]) -> None:
        """Refuse weights that a reward cannot teach.

        Self-critical training follows the difference in reward between a model's own captions; where all of them are
        worth next to nothing there is none to follow.

        Args:
            checkpoint: where the weights are from.
            scores: their validation scores.

        Raises:
            CheckpointError: they have learned nothing yet.
        """
        if scores["cider"] < self.config.min_cider:
            raise CheckpointError(
                f"training.start_from={checkpoint} has CIDEr-D {scores['cider']:.3f} on the validation split and a "
                f"reward needs a start of at least {self.config.min_cider:g} (training.reward_watchdog.min_cider): it "
                "has learned nothing yet that a reward could tell apart; train it longer with "
                "objective.name=cross_entropy first."
            )

    def record_start(self, validation: Validation, recorded: object, captions: str) -> Decision:
        """Keep the validation of the starting weights, with which later ones are compared.

        Args:
            validation: of the starting weights.
            recorded: the `validation_record` of their checkpoint; anything else counts as none.
            captions: fingerprint of the validation split.
        """
        stats = ValidationStats.from_captions(validation.captions)
        self._state.start, self._state.had_collapsed = asdict(stats), bool(validation.warnings)
        messages = []
        before = recorded_score(recorded, self.selection_metric)
        now = validation.scores[self.selection_metric]
        if before is not None and abs(now - before) > self.config.max_start_drift * abs(before):
            assert isinstance(recorded, Mapping)
            explanation = (
                "these captions: photos, features or weights are not those that it was validated with"
                if recorded.get("captions") == captions
                else f'other images or captions (split "{recorded.get("split")}"), so that the two do not compare'
            )
            messages.append(
                f"the starting weights have {self.selection_metric} {now:.3f}, and their checkpoint records "
                f"{before:.3f} on {explanation}"
            )
        return Decision(tuple(("warning", message) for message in messages), metrics=self._metrics(stats))

    # ---- between validations

    def observe(self, parts: Mapping[str, float]) -> None:
        """Add the parts of a step to the open window."""
        state = self._state
        watched = {name: parts[name] for name in (*WATCHED, *self.health_ranges) if name in parts}
        state.first_step = state.first_step or watched
        for name, value in watched.items():
            state.sums[name] = state.sums.get(name, 0.0) + value
            state.steps[name] = state.steps.get(name, 0) + 1

    def close_window(self) -> tuple[dict[str, float], list[str]]:
        """The means since the last call, and warnings; each is reported once until a rollback."""
        state = self._state
        means = {name: value / state.steps[name] for name, value in state.sums.items()}
        state.steps, state.sums = {}, {}
        state.first_window, state.last_window = {**means, **state.first_window}, means
        signs = {}
        if "reward" in means:
            first, now = state.first_window["reward"], means["reward"]
            signs["reward"] = (
                now < first - REWARD_CHANGE * abs(first),
                f"the mean reward of the samples fell from {first:.3f} to {now:.3f}: the steps are too long; lower "
                "training.learning_rate",
            )
        if "length" in means:
            first, now = state.first_window["length"], means["length"]
            signs["length"] = now > self.config.max_length_ratio * first, ": ".join(_grew("samples", first, now))
        for name, health_range in self.health_ranges.items():
            if name in means:
                fact = health_range.symptom.format(value=means[name])
                signs[name] = not health_range.contains(means[name]), f"{fact}: {health_range.advice}"
        warnings = []
        for name, (is_present, sentence) in signs.items():
            streak = state.warning_streaks.get(name, 0)
            if streak < 0:
                continue
            state.warning_streaks[name] = streak + 1 if is_present else 0
            if state.warning_streaks[name] == WARNING_WINDOWS:
                state.warning_streaks[name] = -1
                warnings.append(sentence)
                exceeded = self.health_ranges.get(name)
                if exceeded is not None and exceeded.is_collapse and exceeded.contains(state.first_window[name]):
                    state.collapsed[name] = exceeded.symptom.format(value=means[name])
        return means, warnings

    # ---- at a validation

    def check_validation(self, validation: Validation, best: float, *, is_last: bool = False) -> Decision:
        """Compare a validation with the start and the best one.

        Args:
            validation: its scores and captions.
            best: the best score so far.
            is_last: no step is left, so that a rollback would be of no use.
        """
        state, config = self._state, self.config
        assert state.start is not None, "record_start() was called"
        start, stats, score = (
            ValidationStats(**state.start),
            ValidationStats.from_captions(validation.captions),
            validation.scores[self.selection_metric],
        )
        signs = self._length_signs(start, stats) + self._rate_signs(start, stats, len(validation.captions))
        signs += [(fact, self.health_ranges[name].advice) for name, fact in state.collapsed.items()]
        has_collapsed = bool(state.collapsed)
        state.collapsed = {}
        if validation.warnings and not state.had_collapsed:
            has_collapsed = True
            signs.append(("the captions collapsed, as the warning says", "lower training.learning_rate"))
        if score < max(1 - config.max_score_drop, config.collapse_ratio) * best:
            signs = self._explain_fall(f"{self.selection_metric} is {score:.3f} and was {best:.3f}", signs)
        state.bad_validations = state.bad_validations + 1 if signs else 0
        messages = [("harm", ": ".join(sign)) for sign in signs]
        messages += [("warning", note) for note in self._notes(start, stats)]
        rolls_back = has_collapsed or score < config.collapse_ratio * best or state.bad_validations >= config.patience
        if is_last or not rolls_back:
            return Decision(tuple(messages), is_harmful=bool(signs), metrics=self._metrics(stats))
        reason = "this validation" if state.bad_validations == 1 else f"{state.bad_validations} validations in a row"
        stops = state.rollbacks == config.max_rollbacks
        if stops:
            message = (
                f"because of {reason}, after {config.max_rollbacks} rollbacks "
                f"(training.reward_watchdog.max_rollbacks): stopping; {self.best} has the best weights; try a lower "
                "training.learning_rate or another reward"
            )
        else:
            state.rollbacks += 1
            state.lr_factor *= config.rollback_lr_factor
            message = (
                f"because of {reason}: back to the best weights, {self.selection_metric} {best:.3f}, with "
                f"{state.lr_factor:g} times the learning rate and a fresh optimiser "
                f"({state.rollbacks} of {config.max_rollbacks})"
            )
        messages.append(("stop" if stops else "rollback", message))
        state.bad_validations, state.warning_streaks = 0, {}
        state.sums, state.steps, state.last_window = {}, {}, {}  # of the weights before the rollback
        return Decision(
            tuple(messages), is_harmful=bool(signs), rolls_back=True, stops=stops, metrics=self._metrics(stats)
        )

    def _metrics(self, stats: ValidationStats) -> dict[str, float]:
        return {**asdict(stats), "rollbacks": float(self._state.rollbacks), "lr_factor": self._state.lr_factor}

    def _explain_fall(self, fall: str, signs: list[_Sign]) -> list[_Sign]:
        """What a lower score means: a reward that other captions win than the score, or steps that are too long."""
        state = self._state
        if "reward" in state.last_window:
            before = max(state.first_step["reward"], state.first_window["reward"])
            now = state.last_window["reward"]
            if now > before + REWARD_CHANGE * abs(before):
                fact = f"{fall}, while the mean reward of the samples rose from {before:.3f} to {now:.3f}"
                return [(fact, f"the reward asks for something else than {self.selection_metric}"), *signs]
        facts = ", ".join([fall, *(fact for fact, _ in signs)])
        return [(facts, "the steps lead away from good captions; lower training.learning_rate")]

    def _length_signs(self, start: ValidationStats, stats: ValidationStats) -> list[_Sign]:
        """Captions that are longer than those of the start and of people, or shorter than both."""
        words, usual = stats.words, (start.words, self.reference_words)
        if words > self.config.max_length_ratio * max(usual):
            return [_grew("captions", start.words, words)]
        if words < min(usual) / self.config.max_length_ratio:
            fact = f"the captions shrank from {start.words:.1f} to {words:.1f} words"
            return [
                (
                    fact,
                    "the reward is won by saying little; weigh it less, or reward CIDEr-D, which asks for as many "
                    "words as people use",
                )
            ]
        return []

    def _rate_signs(self, start: ValidationStats, stats: ValidationStats, images: int) -> list[_Sign]:
        """Bad endings, repeats, and captions that are cut off."""
        signs = []
        for name, (description, meaning) in _HARMFUL_RATES.items():
            before, now = getattr(start, name), getattr(stats, name)
            if now - before > self.config.max_rate_increase and round((now - before) * images) >= MIN_CAPTIONS:
                signs.append((f"captions that {description} rose from {before:.0%} to {now:.0%}", meaning))
        return signs

    def _notes(self, start: ValidationStats, stats: ValidationStats) -> list[str]:
        """What a person should know and is no harm in itself; reported once until a rollback."""
        if stats.identical - start.identical < IDENTICAL_INCREASE or "identical" in self._state.warning_streaks:
            return []
        self._state.warning_streaks["identical"] = -1
        return [
            f"{stats.identical:.0%} of the captions are identical to another image's, {start.identical:.0%} at the "
            "start: the model falls back on safe captions; lower training.learning_rate if they say less"
        ]


def _grew(what: str, before: float, now: float) -> _Sign:
    return (
        f"the {what} grew from {before:.1f} to {now:.1f} words",
        "the reward is being gamed; weigh it less, or reward CIDEr-D, which punishes words too many, and let the end "
        "of a caption count",
    )


def validation_record(split: str, captions: str, scores: Mapping[str, float]) -> dict[str, Any]:
    """The record of the validation that a checkpoint was kept for, `about.validation` in its config.json.

    Args:
        split: its name.
        captions: fingerprint of its images and references.
        scores: loss and scores of greedy captions.
    """
    return {"split": split, "captions": captions, "search": "greedy", "scores": dict(scores)}


def recorded_score(record: object, name: str) -> float | None:
    """A score of a `validation_record`; None if there is none, as in checkpoints made by hand."""
    scores = record.get("scores") if isinstance(record, Mapping) else None
    score = scores.get(name) if isinstance(scores, Mapping) else None
    return float(score) if isinstance(score, int | float) else None
