"""Several systems on the same images: each pair's differences, corrected for the number of pairs, and their power.

S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979: of m
p-values in ascending order the i-th is multiplied by m - i + 1, and none may fall below the one before. The family are
the pairs of systems, for each number on its own.

The standard error of a paired difference falls with the root of the number of images, so one bootstrap says how many
images a difference of a given size would need: n (z_(1 - a/2) + z_power)^2 (error / difference)^2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from showtell.scores.bootstrap import CONFIDENCE, SAMPLES, Difference, compare
from showtell.scores.report import ScoreReport

POWER = 0.8  # how often a difference of the stated size is seen
POINT = 0.01  # one point, as papers print 100 times a score


@dataclass(frozen=True)
class Comparison:
    """One number of two systems on the same images."""

    first: str
    second: str
    number: str
    difference: Difference  # the first minus the second
    p_holm: float  # corrected for the number of pairs of systems
    images: int

    @property
    def detectable(self) -> float:
        """The smallest true difference that so many images show, at the usual 5%, in four of five cases."""
        return _deviates() * self.difference.standard_error

    def images_for(self, difference: float = POINT) -> int:
        """The number of images that would show a true difference of this size in four of five cases."""
        return math.ceil(self.images * (self.detectable / difference) ** 2)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "first": self.first,
            "second": self.second,
            "number": self.number,
            **asdict(self.difference),
            "p_holm": self.p_holm,
            "detectable": self.detectable,
            "images_for_a_point": self.images_for(),
        }


def compare_all(reports: Mapping[str, ScoreReport], samples: int = SAMPLES, seed: int = 0) -> list[Comparison]:
    """Every pair of systems, for each number that both have, number by number.

    Args:
        reports: of the systems on the same images, by name.
        samples: bootstrap draws; the same ones for all.
        seed: of the draws.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
    differences = {
        (first, second): compare(reports[first], reports[second], samples, seed)
        for first, second in itertools.combinations(reports, 2)
    }
    images = next(iter(reports.values())).images
    comparisons = []
    for number in dict.fromkeys(number for report in reports.values() for number in report.scores):
        pairs = {pair: of[number] for pair, of in differences.items() if number in of}
        corrected = holm([difference.p for difference in pairs.values()])
        for ((first, second), difference), p in zip(pairs.items(), corrected, strict=True):
            comparisons.append(Comparison(first, second, number, difference, p, images))
    return comparisons


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for how many there are.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        corrected[index] = highest
    return corrected


def _deviates() -> float:
    normal = NormalDist()
    return normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(POWER)
