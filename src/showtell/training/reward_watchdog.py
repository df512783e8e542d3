"""The pilot of a run under a reward: checks where it starts, says what goes wrong, goes back to the best and stops.

A reward can be won without better captions: by more words, by ones that never end, by one safe caption for all. The
pilot holds the captions of each validation against those of the starting weights, and

1. refuses to start from weights that say nothing a reward could tell apart, and keeps the start as the first best, so
   that a run never ends with less than it began with;
2. says each sign of harm in words;
3. after `patience` validations in a row with such a sign, or after one that collapsed, goes back to the best weights
   with a lower learning rate; after `returns` times it stops.

It decides at validations, whose captions every process makes alike. The means of the steps between them (reward,
length) only warn, unless the objective says that outside of their limits training has collapsed (`HealthRange` in
`objectives/contract.py`). What it remembers between steps is numbers, saved with the rest of `last/training/`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from showtell.captioner import Caption
from showtell.errors import CheckpointError
from showtell.objectives.contract import HealthRange
from showtell.scores import diagnose
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.validation import Validation

WATCHED = ("reward", "greedy", "length")  # parts of an objective (`objectives/contract.py`)
CHANGE = 0.2  # of the first window's mean reward, that is called one
LASTING = 3  # windows in a row, before it is said
FEWEST = 3  # captions that a rise is at least
SAME = 0.25  # rise of the share of captions that another image has too

_Sign = tuple[str, str]  # what is seen, and what it means and asks for

# Share of the captions: what it is called, and what it means and asks for. A rise is harm.
_HARM = {
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
    """What the captions of a validation show."""

    words: float  # mean length
    bad_endings: float  # shares of the captions, as in `scores/diagnostics.py`
    repeats: float
    cut_off: float
    identical: float

    @classmethod
    def of(cls, captions: Mapping[str, Caption]) -> ValidationStats:
        """Of the captions of a split."""
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
    """What the pilot makes of a validation."""

    says: tuple[tuple[str, str], ...] = ()  # kind ("warns", "harm", "goes back", "stops") and sentence
    harm: bool = False  # such weights are never kept as the best
    goes_back: bool = False
    stops: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)  # to be tracked


@dataclass
class _Memory:
    """What the pilot knows between steps."""

    start: dict[str, float] | None = None  # the ValidationStats of the starting weights
    had_collapsed: bool = False  # at the start already
    worse: int = 0  # validations in a row with a sign of harm
    returns: int = 0  # times that it went back
    rate: float = 1.0  # what the learning rate is multiplied by
    sums: dict[str, float] = field(default_factory=dict)  # of each part over the window that is open
    steps: dict[str, int] = field(default_factory=dict)  # of the window that have the part
    began: dict[str, float] = field(default_factory=dict)  # of the first step, whose samples are the start's own
    first: dict[str, float] = field(default_factory=dict)  # means of the first window, which vary less
    last: dict[str, float] = field(default_factory=dict)  # of the last one since it went back
    lasting: dict[str, int] = field(default_factory=dict)  # windows in a row with a warning's sign; -1: it was said
    collapsed: dict[str, str] = field(default_factory=dict)  # parts that did, since the last validation: what was seen


class RewardWatchdog:
    """Watches one run.

    Args:
        config: when it acts.
        selection: the validation score that decides what is best.
        reference_words: mean length of the validation captions.
        best: where the best weights are kept, for sentences.
        health_ranges: of further parts of the objective.
    """

    def __init__(
        self,
        config: RewardWatchdogConfig,
        *,
        selection: str,
        reference_words: float,
        best: str,
        health_ranges: Sequence[HealthRange] = (),
    ) -> None:
        self.config = config
        self.health_ranges = {one.name: one for one in health_ranges}
        self.selection = selection
        self.reference_words = reference_words
        self.best = best
        self._memory = _Memory()

    @property
    def rate(self) -> float:
        """What the learning rate is multiplied by."""
        return self._memory.rate

    def in_words(self) -> str:
        """That it is there, and what it will do."""
        patience, returns = self.config.patience, self.config.returns
        after = "a validation" if patience == 1 else f"{patience} validations in a row"
        times = "once" if returns == 1 else f"{returns} times"
        goes_back = f"goes back to the best weights, {times} at most, then stops" if returns else "stops"
        return (
            f"a pilot watches this run: after {after} with a sign of harm it {goes_back} "
            "(training.reward_watchdog; null turns it off)"
        )

    def state_dict(self) -> dict[str, Any]:
        """What is to be kept of it, for JSON."""
        return asdict(self._memory)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was made."""
        self._memory = _Memory(**state)

    # ---- before the first step

    def check_start(self, checkpoint: str, numbers: Mapping[str, float]) -> None:
        """Refuse weights that a reward cannot teach.

        Self-critical training follows the difference in reward between a model's own captions; where all of them are
        worth next to nothing there is none to follow.

        Args:
            checkpoint: where the weights are from.
            numbers: their validation scores.

        Raises:
            CheckpointError: they have learned nothing yet.
        """
        if numbers["cider"] < self.config.least_cider:
            raise CheckpointError(
                f"training.start_from={checkpoint} has CIDEr-D {numbers['cider']:.3f} on the validation split and a "
                f"reward needs a start of at least {self.config.least_cider:g} "
                "(training.reward_watchdog.least_cider): it "
                "has learned nothing yet that a reward could tell apart; train it longer with "
                "objective.name=cross_entropy first."
            )

    def begin(self, validation: Validation, remembered: object, captions: str) -> Decision:
        """Take the starting weights as what later validations are held against.

        Args:
            validation: of the starting weights.
            remembered: what their checkpoint remembers of its own (`validation_record`); anything else is none.
            captions: fingerprint of the validation split.
        """
        vitals = ValidationStats.of(validation.captions)
        self._memory.start, self._memory.had_collapsed = asdict(vitals), bool(validation.warnings)
        says = []
        then = remembered_score(remembered, self.selection)
        now = validation.numbers[self.selection]
        if then is not None and abs(now - then) > self.config.drift * abs(then):
            assert isinstance(remembered, Mapping)
            where = (
                "these captions: photos, features or weights are not those that it was validated with"
                if remembered.get("captions") == captions
                else f'other images or captions (split "{remembered.get("split")}"), so that the two do not compare'
            )
            says.append(
                f"the starting weights have {self.selection} {now:.3f}, and their checkpoint remembers {then:.3f} on "
                + where
            )
        return Decision(tuple(("warns", sentence) for sentence in says), numbers=self._numbers(vitals))

    # ---- between validations

    def watch(self, parts: Mapping[str, float]) -> None:
        """Take in the parts of a step."""
        memory = self._memory
        found = {name: parts[name] for name in (*WATCHED, *self.health_ranges) if name in parts}
        memory.began = memory.began or found
        for name, value in found.items():
            memory.sums[name] = memory.sums.get(name, 0.0) + value
            memory.steps[name] = memory.steps.get(name, 0) + 1

    def close_window(self) -> tuple[dict[str, float], list[str]]:
        """The means since the last call, and warnings; each is said once until the pilot goes back."""
        memory = self._memory
        means = {name: value / memory.steps[name] for name, value in memory.sums.items()}
        memory.steps, memory.sums = {}, {}
        memory.first, memory.last = {**means, **memory.first}, means
        signs = {}
        if "reward" in means:
            first, now = memory.first["reward"], means["reward"]
            signs["reward"] = (
                now < first - CHANGE * abs(first),
                f"the mean reward of the samples fell from {first:.3f} to {now:.3f}: the steps are too long; lower "
                "training.learning_rate",
            )
        if "length" in means:
            first, now = memory.first["length"], means["length"]
            signs["length"] = now > self.config.length * first, ": ".join(_grew("samples", first, now))
        for name, kept in self.health_ranges.items():
            if name in means:
                fact = kept.symptom.format(value=means[name])
                signs[name] = not kept.contains(means[name]), f"{fact}: {kept.advice}"
        said = []
        for name, (is_there, sentence) in signs.items():
            count = memory.lasting.get(name, 0)
            if count < 0:
                continue
            memory.lasting[name] = count + 1 if is_there else 0
            if memory.lasting[name] == LASTING:
                memory.lasting[name] = -1
                said.append(sentence)
                limit = self.health_ranges.get(name)
                if limit is not None and limit.is_collapse and limit.contains(memory.first[name]):
                    memory.collapsed[name] = limit.symptom.format(value=means[name])
        return means, said

    # ---- at a validation

    def judge(self, validation: Validation, best: float, *, is_last: bool = False) -> Decision:
        """Hold a validation against the start and the best one.

        Args:
            validation: what it found.
            best: the best score so far.
            is_last: no step is left, so that there is nothing to go back for.
        """
        memory, config = self._memory, self.config
        assert memory.start is not None, "begin() was called"
        start, vitals, score = (
            ValidationStats(**memory.start),
            ValidationStats.of(validation.captions),
            validation.numbers[self.selection],
        )
        signs = self._length(start, vitals) + self._shares(start, vitals, len(validation.captions))
        signs += [(fact, self.health_ranges[name].advice) for name, fact in memory.collapsed.items()]
        has_collapsed = bool(memory.collapsed)
        memory.collapsed = {}
        if validation.warnings and not memory.had_collapsed:
            has_collapsed = True
            signs.append(("the captions collapsed, as the warning says", "lower training.learning_rate"))
        if score < max(1 - config.tolerance, config.collapse) * best:
            signs = self._explain(f"{self.selection} is {score:.3f} and was {best:.3f}", signs)
        memory.worse = memory.worse + 1 if signs else 0
        says = [("harm", ": ".join(sign)) for sign in signs] + [("warns", note) for note in self._notes(start, vitals)]
        goes_back = has_collapsed or score < config.collapse * best or memory.worse >= config.patience
        if is_last or not goes_back:
            return Decision(tuple(says), harm=bool(signs), numbers=self._numbers(vitals))
        why = "this validation" if memory.worse == 1 else f"{memory.worse} validations in a row"
        stops = memory.returns == config.returns
        if stops:
            says.append(
                ("stops", f"because of {why}, after going back {config.returns} times (training.reward_watchdog."
                 "returns): "
                f"stopping; {self.best} has the best weights; try a lower training.learning_rate or another reward")
            )  # fmt: skip
        else:
            memory.returns += 1
            memory.rate *= config.slower
            says.append(
                ("goes back", f"because of {why}: back to the best weights, {self.selection} {best:.3f}, with "
                f"{memory.rate:g} times the learning rate and a fresh optimiser ({memory.returns} of {config.returns})")
            )  # fmt: skip
        memory.worse, memory.lasting = 0, {}
        memory.sums, memory.steps, memory.last = {}, {}, {}  # of the weights that are left
        return Decision(tuple(says), harm=bool(signs), goes_back=True, stops=stops, numbers=self._numbers(vitals))

    def _numbers(self, vitals: ValidationStats) -> dict[str, float]:
        return {**asdict(vitals), "returns": float(self._memory.returns), "rate": self._memory.rate}

    def _explain(self, fall: str, signs: list[_Sign]) -> list[_Sign]:
        """What a lower score means: a reward that other captions win than the score, or steps that are too long."""
        memory = self._memory
        if "reward" in memory.last:
            before, now = max(memory.began["reward"], memory.first["reward"]), memory.last["reward"]
            if now > before + CHANGE * abs(before):
                fact = f"{fall}, while the mean reward of the samples rose from {before:.3f} to {now:.3f}"
                return [(fact, f"the reward asks for something else than {self.selection}"), *signs]
        facts = ", ".join([fall, *(fact for fact, _ in signs)])
        return [(facts, "the steps lead away from good captions; lower training.learning_rate")]

    def _length(self, start: ValidationStats, vitals: ValidationStats) -> list[_Sign]:
        """Captions that are longer than those of the start and of people, or shorter than both."""
        words, usual = vitals.words, (start.words, self.reference_words)
        if words > self.config.length * max(usual):
            return [_grew("captions", start.words, words)]
        if words < min(usual) / self.config.length:
            fact = f"the captions shrank from {start.words:.1f} to {words:.1f} words"
            return [
                (
                    fact,
                    "the reward is won by saying little; weigh it less, or reward CIDEr-D, which asks for as many "
                    "words as people use",
                )
            ]
        return []

    def _shares(self, start: ValidationStats, vitals: ValidationStats, images: int) -> list[_Sign]:
        """Bad endings, repeats, and captions that are cut off."""
        found = []
        for name, (what, meaning) in _HARM.items():
            before, now = getattr(start, name), getattr(vitals, name)
            if now - before > self.config.rise and round((now - before) * images) >= FEWEST:
                found.append((f"captions that {what} rose from {before:.0%} to {now:.0%}", meaning))
        return found

    def _notes(self, start: ValidationStats, vitals: ValidationStats) -> list[str]:
        """What a person should know and no harm in itself; said once until the pilot goes back."""
        if vitals.identical - start.identical < SAME or "identical" in self._memory.lasting:
            return []
        self._memory.lasting["identical"] = -1
        return [
            f"{vitals.identical:.0%} of the captions are said of another image too, {start.identical:.0%} at the "
            "start: the model falls back on safe captions; lower training.learning_rate if they say less"
        ]


def _grew(what: str, before: float, now: float) -> _Sign:
    return (
        f"the {what} grew from {before:.1f} to {now:.1f} words",
        "the reward is being gamed; weigh it less, or reward CIDEr-D, which punishes words too many, and let the end "
        "of a caption count",
    )


def validation_record(split: str, captions: str, numbers: Mapping[str, float]) -> dict[str, Any]:
    """What a checkpoint remembers of the validation that it was kept for, in `about.validation`.

    Args:
        split: its name.
        captions: fingerprint of its images and references.
        numbers: loss and scores of greedy captions.
    """
    return {"split": split, "captions": captions, "search": "greedy", "scores": dict(numbers)}


def remembered_score(record: object, name: str) -> float | None:
    """A score from what `validation_record` made; None where there is none, as in checkpoints made by hand."""
    scores = record.get("scores") if isinstance(record, Mapping) else None
    score = scores.get(name) if isinstance(scores, Mapping) else None
    return float(score) if isinstance(score, int | float) else None
