"""The reward watchdog: it notices when a reward does harm, rolls back to the best weights, and stops.

A reward can be won without better captions: by more words, by captions that never end, by one safe caption for all. The
watchdog compares the captions of each validation with those of the starting weights. After `patience` validations in a
row with a sign of harm, or after a collapse, it rolls back to the best weights with a lower learning rate; after
`max_rollbacks` of them it stops. All processes have the same captions and come to the same decision. What it remembers
between steps is numbers, saved in `last/training/`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import TypeAdapter

from showtell.captions import Caption
from showtell.errors import CheckpointError
from showtell.objectives.contract import HealthRange
from showtell.scores import diagnose
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.validation import Validation

REWARD_RISE = 0.2  # relative rise of the mean reward since the first step by which a falling score is explained
MIN_CAPTIONS = 3  # captions by which a rate has to rise at least
_HARMFUL_RATES = {  # rates of captions of which an increase is harm, with what it means
    "bad_endings": 'that end in a word like "a" or "with": the end of a caption has to be part of reward and gradient',
    "repeats": "that say words twice in a row: the reward counts words without their order; reward CIDEr-D",
    "cut_off": "that are cut off before they end: let the end be part of the reward, or raise decoding.max_length",
}


def rates_of(captions: Mapping[str, Caption]) -> dict[str, float]:
    """The mean length of captions, and the shares with bad endings, repeats and no end."""
    rates = diagnose(caption.text for caption in captions.values())
    cut_off = statistics.fmean(not caption.finished for caption in captions.values())
    return {"words": rates["mean_length"], "cut_off": cut_off} | {key: rates[key] for key in ("bad_endings", "repeats")}


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

    start: dict[str, float] = field(default_factory=dict)  # `rates_of` the starting weights
    had_collapsed: bool = False  # at the start already
    bad_validations: int = 0  # in a row, with a sign of harm
    rollbacks: int = 0
    lr_factor: float = 1.0
    first: dict[str, float] = field(default_factory=dict)  # parts of the objective at the first step
    sums: dict[str, float] = field(default_factory=dict)  # of each part, since the last validation
    steps: dict[str, int] = field(default_factory=dict)  # that had the part


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
        self.config, self.health_ranges = config, health_ranges
        self.selection_metric, self.reference_words, self.best = selection_metric, reference_words, best
        self._state = _State()

    @property
    def lr_factor(self) -> float:
        """What the learning rate is multiplied by."""
        return self._state.lr_factor

    def state_dict(self) -> dict[str, Any]:
        """Its state, for JSON."""
        return asdict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned.

        Raises:
            ValueError: a key or a type is wrong.
        """
        self._state = TypeAdapter(_State).validate_json(json.dumps(state))

    def record_start(self, validation: Validation, checkpoint: str) -> Decision:
        """Keep the captions' rates of the starting weights, with which later ones are compared.

        Raises:
            CheckpointError: the weights have learned nothing that a reward could tell apart.
        """
        cider = validation.scores["cider"]
        if cider < self.config.min_cider:
            raise CheckpointError(
                f"training.start_from={checkpoint} has CIDEr-D {cider:.3f} on the validation split and a reward needs "
                f"a start of at least {self.config.min_cider:g} (training.reward_watchdog.min_cider): it has learned "
                "nothing yet that a reward could tell apart; train it longer with objective.name=cross_entropy first."
            )
        self._state.start, self._state.had_collapsed = rates_of(validation.captions), bool(validation.warnings)
        return Decision(metrics=self._state.start)

    def observe(self, parts: Mapping[str, float]) -> None:
        """Take in the parts of a step."""
        state = self._state
        for name in {"reward", *(health_range.name for health_range in self.health_ranges)} & parts.keys():
            state.first.setdefault(name, parts[name])
            state.sums[name] = state.sums.get(name, 0.0) + parts[name]
            state.steps[name] = state.steps.get(name, 0) + 1

    def check_validation(self, validation: Validation, best: float, *, is_last: bool = False) -> Decision:
        """Compare a validation with the start and the best one.

        Args:
            validation: its scores and captions.
            best: the best score so far.
            is_last: no step is left, so that a rollback would be of no use.
        """
        state, config, score = self._state, self.config, validation.scores[self.selection_metric]
        rates = rates_of(validation.captions)
        means = {name: total / state.steps[name] for name, total in state.sums.items()}
        state.sums, state.steps = {}, {}
        warnings, collapses = self._check_ranges(means)
        if validation.warnings and not state.had_collapsed:
            collapses.append("the captions collapsed, as the warning says: lower training.learning_rate")
        if score < config.collapse_ratio * best or score < (1 - config.max_score_drop) * best:
            signs = [self._explain_fall(score, best, means)]
        else:
            signs = []
        signs += [*self._length_signs(rates), *self._rate_signs(rates, len(validation.captions)), *collapses]
        messages = [*(("harm", sign) for sign in signs), *(("warning", warning) for warning in warnings)]
        state.bad_validations = state.bad_validations + 1 if signs else 0
        is_collapse = bool(collapses) or score < config.collapse_ratio * best
        rolls_back = not is_last and (is_collapse or state.bad_validations >= config.patience)
        stops = rolls_back and state.rollbacks == config.max_rollbacks
        if rolls_back:
            messages.append(self._roll_back(best, stops=stops))
        metrics = {**rates, **means, "rollbacks": float(state.rollbacks), "lr_factor": state.lr_factor}
        return Decision(tuple(messages), bool(signs), rolls_back, stops, metrics)

    def _roll_back(self, best: float, *, stops: bool) -> tuple[str, str]:
        """Count a rollback, or the stop in its place; gives its message."""
        state, most = self._state, self.config.max_rollbacks
        bad, state.bad_validations = state.bad_validations, 0
        reason = "this validation" if bad == 1 else f"{bad} validations in a row"
        if stops:
            return "stop", (
                f"because of {reason}, after {most} rollbacks (training.reward_watchdog.max_rollbacks): stopping; "
                f"{self.best} has the best weights; try a lower training.learning_rate or another reward"
            )
        state.rollbacks += 1
        state.lr_factor *= self.config.rollback_lr_factor
        return "rollback", (
            f"because of {reason}: back to the best weights, {self.selection_metric} {best:.3f}, with "
            f"{state.lr_factor:g} times the learning rate and a fresh optimiser ({state.rollbacks} of {most})"
        )

    def _explain_fall(self, score: float, best: float, means: Mapping[str, float]) -> str:
        """What a lower score means: a reward that is won by worse captions, or steps that are too long."""
        fall = f"{self.selection_metric} is {score:.3f} and was {best:.3f}"
        before, now = self._state.first.get("reward", 0.0), means.get("reward", 0.0)
        if now > before + REWARD_RISE * abs(before):
            return (
                f"{fall}, while the mean reward of the samples rose from {before:.3f} to {now:.3f}: the reward asks "
                f"for something else than {self.selection_metric}"
            )
        return f"{fall}: the steps lead away from good captions; lower training.learning_rate"

    def _length_signs(self, rates: Mapping[str, float]) -> list[str]:
        """Captions that are longer than those of the start and of people, or shorter than both."""
        words, before, most = rates["words"], self._state.start["words"], self.config.max_length_ratio
        change = f"from {before:.1f} to {words:.1f} words"
        if words > most * max(before, self.reference_words):
            return [f"the captions grew {change}: the reward is being gamed; reward CIDEr-D, and let the end count"]
        if words < min(before, self.reference_words) / most:
            return [f"the captions shrank {change}: the reward is won by saying little; weigh it less"]
        return []

    def _rate_signs(self, rates: Mapping[str, float], images: int) -> list[str]:
        """Bad endings, repeats, and captions that are cut off."""
        rises = {name: rates[name] - self._state.start[name] for name in _HARMFUL_RATES}
        return [
            f"{self._state.start[name]:.0%} of the captions at the start, {rates[name]:.0%} now are captions {meaning}"
            for name, meaning in _HARMFUL_RATES.items()
            if rises[name] > self.config.max_rate_increase and round(rises[name] * images) >= MIN_CAPTIONS
        ]

    def _check_ranges(self, means: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """Warnings about parts outside of their ranges, and those that were inside at first and have collapsed."""
        warnings: list[str] = []
        collapses: list[str] = []
        for health_range in self.health_ranges:
            name = health_range.name
            if name in means and not health_range.contains(means[name]):
                sentence = f"{health_range.symptom.format(value=means[name])}: {health_range.advice}"
                collapsed = health_range.is_collapse and health_range.contains(self._state.first[name])
                (collapses if collapsed else warnings).append(sentence)
        return warnings, collapses
