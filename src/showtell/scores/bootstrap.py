"""Paired bootstrap: the interval of one system's score, and whether a difference between two may be chance.

P. Koehn, Statistical significance tests for machine translation evaluation, EMNLP 2004: draw as many images as there
are, with replacement, many times, and score each draw. It is cheap because a score is made from sums of statistics:
a draw is a row of counts, and all draws of all scores are one matrix product. The two systems of a comparison are
scored on the same draws. CIDEr's document frequencies stay those of the whole corpus.

Of several systems each pair's p-values are corrected for the number of pairs, for each number on its own: S. Holm, A
simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from showtell.scores.base import Floats, ScoreStatistics

SAMPLES = 1000
CONFIDENCE = 0.95
_COUNTS_AT_ONCE = 10_000_000
Statistics = Mapping[str, ScoreStatistics]  # of each metric


@dataclass(frozen=True)
class Interval:
    """Where a score lies in most draws."""

    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The first system's score minus the second's, in one number."""

    first: str
    second: str
    number: str
    value: float
    low: float
    high: float
    p: float  # how often chance alone gives a difference at least as large, either way
    p_holm: float  # corrected for the number of pairs of systems


def intervals(statistics: Statistics, samples: int, seed: int) -> dict[str, Interval]:
    """The 95% interval of each number that is defined."""
    drawn = draw(statistics, samples, seed)
    return {name: Interval(*_bounds(column)) for name, column in drawn.items() if not np.isnan(column).all()}


def significance(column: Floats, value: float, images: int) -> tuple[float, float, float] | None:
    """The interval of a difference, from its values in all draws; and p, how often chance alone gives as much."""
    defined = column[~np.isnan(column)]
    if not len(defined):
        return None
    # under "no difference" draws would lie around 0 as they lie around their mean (as in sacrebleu)
    as_large = int((np.abs(defined - defined.mean()) >= abs(value)).sum())
    # of n images that all favour one system, chance alone does as much once in 2 ** (n - 1)
    return *_bounds(defined), max((as_large + 1) / (len(defined) + 1), 2.0 ** (1 - images))


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for how many there are: the i-th smallest of m times m - i + 1, none below the one before."""
    order = np.argsort(values, kind="stable")
    raised = np.minimum(1.0, np.asarray(values)[order] * np.arange(len(values), 0, -1))
    corrected: list[float] = np.maximum.accumulate(raised)[np.argsort(order)].tolist()
    return corrected


def draw(statistics: Statistics, samples: int, seed: int) -> dict[str, Floats]:
    """The values of each number, by its name, in all draws: (samples,). The same seed draws the same images."""
    if not statistics:
        return {}
    every = list(statistics.values())
    rows = np.hstack([one.rows for one in every])
    sums = np.concatenate([counts @ rows for counts in drawn_counts(len(rows), samples, seed)])
    parts = np.split(sums, np.cumsum([one.rows.shape[1] for one in every])[:-1], axis=1)
    drawn: dict[str, Floats] = {}
    for one, own in zip(every, parts, strict=True):
        drawn.update(zip(one.score.names, one.from_sums(own).T, strict=True))
    return drawn


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
