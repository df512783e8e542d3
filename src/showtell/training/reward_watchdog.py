"""The reward watchdog: it notices when a reward does harm, rolls back to the best weights, and stops.

A reward can be won without better captions: by more words, by captions that never end, by one safe caption for all. The
watchdog compares the captions of each validation with those of the starting weights. After `patience` validations in a
row with a sign of harm, or after a collapse, it rolls back to the best weights with a lower learning rate; after
`max_rollbacks` of them it stops. All processes have the same captions and come to the same decision.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from showtell.captions import Caption
from showtell.errors import CheckpointError
from showtell.objectives.contract import HealthRange
from showtell.scores import diagnose
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.state import WatchdogState
from showtell.training.validation import Validation

COLLAPSE = 0.5  # share of the best score below which a run is rolled back at once
MAX_RATE_INCREASE = 0.05  # of the share of captions with bad endings, repeats or no end
MAX_LENGTH_RATIO = 1.3  # by which captions may be longer or shorter than those of start and references
ROLLBACK_LR_FACTOR = 0.5  # of the learning rate at each rollback
REWARD_RISE = 0.2  # relative rise of the mean reward since the first step by which a falling score is explained
MIN_CAPTIONS = 3  # captions by which a rate has to rise at least
_HARMFUL_RATES = {  # rates of captions of which an increase is harm, with what it means
    "bad_endings": 'that end in a word like "a" or "with": the end of a caption has to be part of reward and gradient',
    "repeats": "that say words twice in a row: the reward counts words without their order; reward CIDEr-D",
    "cut_off": "that are cut off before they end: let the end be part of the reward, or raise decoding.max_length",
}


@dataclass(frozen=True)
class Decision:
    """The decision after a validation."""

    messages: tuple[tuple[str, str], ...] = ()  # kind ("warning", "harm", "rollback", "stop") and sentence
    is_harmful: bool = False  # such weights are never kept as the best
    rolls_back: bool = False
    stops: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)  # for the trackers


def rates_of(captions: Mapping[str, Caption]) -> dict[str, float]:
    """The mean length of captions, and the shares with bad endings, repeats and no end."""
    rates = diagnose(caption.text for caption in captions.values())
    cut_off = statistics.fmean(not caption.finished for caption in captions.values())
    return {"words": rates["mean_length"], "cut_off": cut_off} | {key: rates[key] for key in ("bad_endings", "repeats")}


@dataclass
class RewardWatchdog:
    """Supervises one run."""

    config: RewardWatchdogConfig
    selection_metric: str  # the validation score that selects the best weights
    reference_words: float  # mean length of the validation captions
    best: Path  # of the best weights, for messages
    health_ranges: Sequence[HealthRange] = ()  # of further parts of the objective
    state: WatchdogState = field(default_factory=WatchdogState)

    def record_start(self, validation: Validation, checkpoint: str) -> Decision:
        """Keep the starting weights' rates, to compare with; a CheckpointError if they have learned nothing yet."""
        cider = validation.scores["cider"]
        if cider < self.config.min_cider:
            raise CheckpointError(
                f"training.start_from={checkpoint} has CIDEr-D {cider:.3f} on the validation split and a reward needs "
                f"a start of at least {self.config.min_cider:g} (training.reward_watchdog.min_cider): it has learned "
                "nothing yet that a reward could tell apart; train it longer with objective.name=cross_entropy first."
            )
        self.state.start, self.state.had_collapsed = rates_of(validation.captions), bool(validation.warnings)
        return Decision(metrics=self.state.start)

    def observe(self, parts: Mapping[str, float]) -> None:
        """Take in the parts of a step."""
        state = self.state
        for name in ("reward", *(part.name for part in self.health_ranges)):
            if name in parts:
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
        state, config, score = self.state, self.config, validation.scores[self.selection_metric]
        rates = rates_of(validation.captions)
        means = {name: total / state.steps[name] for name, total in state.sums.items()}
        state.sums, state.steps = {}, {}
        warnings, collapses = self._check_ranges(means)
        if validation.warnings and not state.had_collapsed:
            collapses.append("the captions collapsed, as the warning says: lower training.learning_rate")
        signs = [*self._signs_of_harm(score, best, means, rates, len(validation.captions)), *collapses]
        state.bad_validations = state.bad_validations + 1 if signs else 0
        is_collapse = bool(collapses) or score < COLLAPSE * best
        rolls_back = not is_last and (is_collapse or state.bad_validations >= config.patience)
        stops = rolls_back and state.rollbacks == config.max_rollbacks
        messages = [*(("harm", sign) for sign in signs), *(("warning", warning) for warning in warnings)]
        if rolls_back:
            messages.append(self._roll_back(best, stops=stops))
        metrics = {**rates, **means, "rollbacks": float(state.rollbacks), "lr_factor": state.lr_factor}
        return Decision(tuple(messages), bool(signs), rolls_back, stops, metrics)

    def _signs_of_harm(
        self, score: float, best: float, means: Mapping[str, float], rates: Mapping[str, float], images: int
    ) -> Iterator[str]:
        """A fallen score, captions that grew or shrank beyond those of the start and of people, and rates that rose."""
        state, config, metric = self.state, self.config, self.selection_metric
        if score < max(COLLAPSE, 1 - config.max_score_drop) * best:
            reason = ": the steps lead away from good captions; lower training.learning_rate"
            before, now = (parts.get("reward", 0.0) for parts in (state.first, means))
            if now > before + REWARD_RISE * abs(before):
                fact = f"the mean reward of the samples rose from {before:.3f} to {now:.3f}"
                reason = f", while {fact}: the reward asks for something else than {metric}"
            yield f"{metric} is {score:.3f} and was {best:.3f}{reason}"
        words, before = rates["words"], state.start["words"]
        change = f"from {before:.1f} to {words:.1f} words"
        if words > MAX_LENGTH_RATIO * max(before, self.reference_words):
            yield f"the captions grew {change}: the reward is being gamed; reward CIDEr-D, and let the end count"
        if words < min(before, self.reference_words) / MAX_LENGTH_RATIO:
            yield f"the captions shrank {change}: the reward is won by saying little; weigh it less"
        for name, meaning in _HARMFUL_RATES.items():
            rise = rates[name] - state.start[name]
            if rise > MAX_RATE_INCREASE and round(rise * images) >= MIN_CAPTIONS:
                share = f"{state.start[name]:.0%} of the captions at the start, {rates[name]:.0%} now"
                yield f"{share} are captions {meaning}"

    def _check_ranges(self, means: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """Warnings about parts outside of their ranges, and those that were inside at first and have collapsed."""
        warnings: list[str] = []
        collapses: list[str] = []
        for part in self.health_ranges:
            if part.name in means and not part.contains(means[part.name]):
                collapsed = part.is_collapse and part.contains(self.state.first[part.name])
                sentence = f"{part.symptom.format(value=means[part.name])}: {part.advice}"
                (collapses if collapsed else warnings).append(sentence)
        return warnings, collapses

    def _roll_back(self, best: float, *, stops: bool) -> tuple[str, str]:
        """Count a rollback, or the stop in its place; returns its message."""
        state, most = self.state, self.config.max_rollbacks
        bad, state.bad_validations = state.bad_validations, 0
        reason = "this validation" if bad == 1 else f"{bad} validations in a row"
        if stops:
            return "stop", (
                f"because of {reason}, after {most} rollbacks (training.reward_watchdog.max_rollbacks): stopping; "
                f"{self.best} has the best weights; try a lower training.learning_rate or another reward"
            )
        state.rollbacks += 1
        state.lr_factor *= ROLLBACK_LR_FACTOR
        return "rollback", (
            f"because of {reason}: back to the best weights, {self.selection_metric} {best:.3f}, with "
            f"{state.lr_factor:g} times the learning rate and a fresh optimiser ({state.rollbacks} of {most})"
        )
