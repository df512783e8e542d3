"""Paired bootstrap: the interval of one system's score, and whether a difference between two may be chance.

P. Koehn, Statistical significance tests for machine translation evaluation, EMNLP 2004: draw as many images as there
are, with replacement, many times, and score each draw. It is cheap because a score is made from sums of statistics:
a draw is a row of counts, and all draws of all scores are one matrix product. The two systems of a comparison are
scored on the same draws. CIDEr's document frequencies stay those of the whole corpus.

Of several systems each pair's p-values are corrected for the number of pairs, for each number on its own: S. Holm, A
simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from showtell.errors import DataError, summarise
from showtell.scores.base import Floats
from showtell.scores.report import ScoreReport, ScoreStatistics

SAMPLES = 1000
CONFIDENCE = 0.95
_COUNTS_AT_ONCE = 10_000_000


@dataclass(frozen=True)
class Interval:
    """Where a score lies in most draws."""

    low: float
    high: float


@dataclass(frozen=True)
class Difference:
    """The first system's score minus the second's."""

    value: float
    low: float
    high: float
    p: float  # how often chance alone gives a difference at least as large, either way


@dataclass(frozen=True)
class Comparison(Difference):
    """The difference of two systems in one number."""

    first: str
    second: str
    number: str
    p_holm: float  # corrected for the number of pairs of systems


def intervals(report: ScoreReport, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
    """The 95% interval of each number of a report that is defined."""
    result = {}
    for statistics in report.statistics.values():
        draws = _draws(statistics, samples, seed)
        for name, column in zip(statistics.score.names, draws.T, strict=True):
            if not np.isnan(column).all():
                result[name] = Interval(*_bounds(column))
    return result


def compare(first: ScoreReport, second: ScoreReport, samples: int = SAMPLES, seed: int = 0) -> dict[str, Difference]:
    """The differences between two systems on the same images, for the numbers that are defined for both.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
    if first.ids != second.ids:
        odd = sorted(set(first.ids) ^ set(second.ids))
        raise DataError(f"Two systems are compared on the same images; only one has {summarise(odd)}.")
    differences = {}
    for metric in first.statistics.keys() & second.statistics.keys():
        a, b = first.statistics[metric], second.statistics[metric]
        if a.signature != b.signature:
            raise DataError(f"The two {metric} scores are made differently: {a.signature} and {b.signature}.")
        observed = a.from_sums(a.rows.sum(axis=0)) - b.from_sums(b.rows.sum(axis=0))
        draws = _draws(a, samples, seed) - _draws(b, samples, seed)
        for name, value, column in zip(a.score.names, observed.tolist(), draws.T, strict=True):
            defined = column[~np.isnan(column)]
            if not np.isnan(value) and len(defined):
                # under "no difference" the draws would lie around 0 as they lie around their mean (as in sacrebleu)
                as_large = int((np.abs(defined - defined.mean()) >= abs(value)).sum())
                p = (as_large + 1) / (len(defined) + 1)
                differences[name] = Difference(value, *_bounds(defined), p)
    return {name: differences[name] for name in first.scores if name in differences}


def compare_all(reports: Mapping[str, ScoreReport], samples: int = SAMPLES, seed: int = 0) -> list[Comparison]:
    """Every pair of systems on the same draws, for each number that both have, number by number.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
    differences = {
        (first, second): compare(reports[first], reports[second], samples, seed)
        for first, second in itertools.combinations(reports, 2)
    }
    comparisons = []
    for number in dict.fromkeys(number for report in reports.values() for number in report.scores):
        pairs = {pair: of[number] for pair, of in differences.items() if number in of}
        corrected = holm([difference.p for difference in pairs.values()])
        comparisons += [
            Comparison(**asdict(difference), first=first, second=second, number=number, p_holm=p)
            for ((first, second), difference), p in zip(pairs.items(), corrected, strict=True)
        ]
    return comparisons


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for how many there are: the i-th smallest of m times m - i + 1, none below the one before.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = highest
    return corrected


def _draws(statistics: ScoreStatistics, samples: int, seed: int) -> Floats:
    """The score of each draw: (samples, names). The same seed draws the same images."""
    sums = [counts @ statistics.rows for counts in drawn_counts(len(statistics.rows), samples, seed)]
    return statistics.from_sums(np.concatenate(sums))


def drawn_counts(images: int, samples: int, seed: int) -> Iterator[Floats]:
    """How often each image is drawn, some draws at a time: (draws, images)."""
    rng = np.random.default_rng(seed)
    step = max(1, _COUNTS_AT_ONCE // images)
    for first in range(0, samples, step):
        draws = min(step, samples - first)
        drawn = rng.integers(images, size=(draws, images)) + np.arange(draws)[:, None] * images
        yield np.bincount(drawn.ravel(), minlength=draws * images).reshape(draws, images).astype(np.float64)


def _bounds(column: Floats) -> tuple[float, float]:
    """The middle share of the values that are defined, of which there is at least one."""
    low, high = np.quantile(column[~np.isnan(column)], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
