"""How well scores agree with people: rank correlations and pairwise accuracy, with intervals over images.

A bootstrap draw takes as many images as there are, with replacement, and all judgements of each. All scores see the
same draws, so that their differences have intervals of their own. Numbers of which lower is better are negated, so that
more always is better agreement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from showtell.scores.base import Floats, Score, image_numbers
from showtell.scores.bootstrap import SAMPLES, Difference, bounds, difference_of, drawn_counts
from showtell.scores.comparison import holm
from showtell.scores.judgements import Judgements
from showtell.scores.rank_correlation import CORRELATIONS, PairedRanks
from showtell.scores.report import ScoreReport

MEASURES = (*CORRELATIONS, "pairwise_accuracy")
_WEIGHTS_AT_ONCE = 400_000  # so that they stay in the cache


@dataclass(frozen=True)
class Estimate:
    """A measure of agreement with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class HumanCorrelation:
    """How well each number of a report agrees with people."""

    tau: str  # the measure by which numbers are ranked and compared
    agreement: dict[str, dict[str, Estimate]]  # number, then measure; only those that are defined
    best: str | None  # the number that agrees best
    differences: dict[str, Difference]  # of each other number from the best, in its tau
    p_holm: dict[str, float]  # their p-values, corrected for their number
    skipped: dict[str, str]  # number: why it has no correlation

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "tau": self.tau,
            "agreement": {
                number: {measure: asdict(one) for measure, one in of.items()} for number, of in self.agreement.items()
            },
            "best": self.best,
            "differences": {
                number: {"from": self.best, **asdict(one), "p_holm": self.p_holm[number]}
                for number, one in self.differences.items()
            },
        }


def correlate(
    report: ScoreReport,
    judgements: Judgements,
    samples: int = SAMPLES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> HumanCorrelation:
    """The agreement of all numbers of a report with people.

    Args:
        report: of the judged captions, an image of it for each caption, in their order.
        judgements: at least one of these.
        samples: bootstrap draws over images.
        seed: of the draws.
        progress: called with 1 when a number is done.
    """
    values, skipped = _values(report)
    _, image = np.unique([one.image for one in judgements.captions], return_inverse=True)
    caption = np.repeat(np.arange(len(image)), [len(one.ratings) for one in judgements.captions])
    ratings = np.array([rating for one in judgements.captions for rating in one.ratings])
    means = np.bincount(caption, weights=ratings) / np.bincount(caption)
    draws: dict[str, Floats] = {}  # (samples, measures)
    agreement: dict[str, dict[str, Estimate]] = {}
    for number, column in values.items():
        ranks, pairs = PairedRanks(column[caption], ratings), _pairs(column, means, image)
        of_draws = [_measure(ranks, pairs, np.ones((1, pairs.shape[0])), image[caption])]
        step = max(1, _WEIGHTS_AT_ONCE // len(caption))
        for counts in drawn_counts(pairs.shape[0], samples, seed):
            of_draws += [
                _measure(ranks, pairs, counts[first : first + step], image[caption])
                for first in range(0, len(counts), step)
            ]
        (observed, *_), draws[number] = of_draws[0], np.concatenate(of_draws[1:])
        agreement[number] = {
            measure: Estimate(float(value), *bounds(drawn, 0.95))
            for measure, value, drawn in zip(MEASURES, observed, draws[number].T, strict=True)
            if np.isfinite(value)
        }
        if progress:
            progress(1)
    return _against_best(judgements.tau, agreement, draws, skipped)


def _values(report: ScoreReport) -> tuple[dict[str, Floats], dict[str, str]]:
    """Each number of each caption, larger where it is better; and why others have none."""
    values: dict[str, Floats] = {}
    skipped = dict(report.skipped)
    for statistics in report.statistics.values():
        own = statistics.score.numbers if isinstance(statistics.score, Score) else ()
        negated = {number.name for number in own if number.lower_is_better}
        columns = image_numbers(statistics.score, statistics.rows).T
        for name, column in zip(statistics.score.names, columns, strict=True):
            undefined = int((~np.isfinite(column)).sum())
            if undefined:
                skipped[name] = f"it is not defined for {undefined} of {len(column)} captions"
            elif len(np.unique(column)) == 1:
                skipped[name] = "it is the same for all captions"
            else:
                values[name] = -column if name in negated else column
    return {name: values[name] for name in report.scores if name in values}, skipped


def _pairs(values: Floats, ratings: Floats, image: Any) -> Floats:
    """Pairs of captions of an image that people rate differently, and how many a number orders alike: (images, 2).

    A pair that the number does not tell apart counts half.
    """
    result = np.zeros((int(image.max()) + 1, 2))
    order = np.argsort(image, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(image[order])) + 1):
        first, second = np.triu_indices(len(group), 1)
        wanted = np.sign(ratings[group][first] - ratings[group][second])
        given = np.sign(values[group][first] - values[group][second])
        differ = wanted != 0
        result[image[group[0]]] = differ.sum(), ((1 + wanted * given) / 2)[differ].sum()
    return result


def _measure(ranks: PairedRanks, pairs: Floats, counts: Floats, image: Any) -> Floats:
    """The measures of some draws: (draws, images) to (draws, measures)."""
    differ, alike = (counts @ pairs).T
    accuracy = np.divide(alike, differ, out=np.full_like(alike, np.nan), where=differ > 0)
    return np.concatenate([ranks.correlations(counts[:, image]), accuracy[:, None]], axis=1)


def _against_best(
    tau: str, agreement: dict[str, dict[str, Estimate]], draws: Mapping[str, Floats], skipped: dict[str, str]
) -> HumanCorrelation:
    ranked = {number: of[tau].value for number, of in agreement.items() if tau in of}
    best = max(ranked, key=ranked.__getitem__, default=None)
    differences = {}
    for number in ranked:
        if best is not None and number != best:
            drawn = draws[number][:, MEASURES.index(tau)] - draws[best][:, MEASURES.index(tau)]
            differences[number] = difference_of(ranked[number] - ranked[best], drawn[np.isfinite(drawn)])
    corrected = holm([one.p for one in differences.values()])
    return HumanCorrelation(tau, agreement, best, differences, dict(zip(differences, corrected, strict=True)), skipped)
