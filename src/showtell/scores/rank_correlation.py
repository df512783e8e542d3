"""Kendall's tau-b and tau-c and Spearman's rho of weighted pairs, for many sets of weights at once.

M. G. Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945; A. Stuart, The estimation and comparison
of strengths of association in contingency tables, Biometrika 40, 1953. With S the concordant less the discordant pairs
of N items, X and Y the pairs that are not tied in one and the other, and m the smaller number of different values,

    tau_b = S / sqrt(X Y)        tau_c = 2 S m / (N^2 (m - 1))        rho = Pearson's r of the mid-ranks.

A bootstrap draw gives each item a whole number of copies, its weight: S is the sum of w_i w_j sign(y_j - y_i) over the
pairs with x_i < x_j. Two ranks of y differ first at one of their bits. For each bit the items that agree in all higher
ones are a segment, in which in the order of x two cumulative sums give every pair at once; so the cost is items x draws
x log2(ranks of y), which for ratings from 1 to 4 is twice. The structure depends on the ranks alone and is made once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from showtell.scores.base import Floats

Integers = npt.NDArray[np.int64]

CORRELATIONS = ("tau_b", "tau_c", "spearman")


@dataclass(frozen=True)
class _Level:
    """One bit of the ranks of y: the cells by segment, then x."""

    order: Integers
    bit: Floats
    segment: Integers  # index of the first cell of a cell's segment
    group: Integers  # index of the first cell of its segment with the same x


class PairedRanks:
    """Pairs (x, y), ranked once. x: (n,), y: (n,), n >= 1, all finite."""

    def __init__(self, x: Floats, y: Floats) -> None:
        _, x_rank = np.unique(x, return_inverse=True)
        y_values, y_rank = np.unique(y, return_inverse=True)
        self._order = np.lexsort((y_rank, x_rank))
        x_sorted, y_sorted = x_rank[self._order], y_rank[self._order]
        self._cells = _starts(x_sorted, y_sorted)  # items of equal x and y weigh as one
        self._x, self._y = x_sorted[self._cells], y_sorted[self._cells]
        self._x_groups = _starts(self._x)
        self._by_y = np.argsort(self._y, kind="stable")
        self._y_groups = _starts(self._y[self._by_y])
        self._levels = [self._level(bit) for bit in range((len(y_values) - 1).bit_length())]

    def _level(self, bit: int) -> _Level:
        segment = self._y >> (bit + 1)
        order = np.lexsort((self._x, segment))
        bits = ((self._y[order] >> bit) & 1).astype(np.float64)
        return _Level(order, bits, _first(segment[order]), _first(segment[order], self._x[order]))

    def correlations(self, weights: Floats) -> Floats:
        """tau_b, tau_c and rho for each set of weights, nan where all items are tied: (sets, n) to (sets, 3).

        Args:
            weights: whole numbers, how often each pair is there.
        """
        cells = np.add.reduceat(weights[:, self._order], self._cells, axis=1)
        x_groups = np.add.reduceat(cells, self._x_groups, axis=1)
        y_groups = np.add.reduceat(cells[:, self._by_y], self._y_groups, axis=1)
        items = cells.sum(axis=1)
        concordance = sum((_concordance(cells, level) for level in self._levels), np.zeros(len(weights)))
        untied_x = (items**2 - (x_groups**2).sum(axis=1)) / 2
        untied_y = (items**2 - (y_groups**2).sum(axis=1)) / 2
        classes = np.minimum((x_groups > 0).sum(axis=1), (y_groups > 0).sum(axis=1))
        x_middle = np.cumsum(x_groups, axis=1) - (x_groups + items[:, None]) / 2  # mid-ranks less their mean
        y_middle = np.cumsum(y_groups, axis=1) - (y_groups + items[:, None]) / 2
        shared = (cells * x_middle[:, self._x] * y_middle[:, self._y]).sum(axis=1)
        spread = np.sqrt((x_groups * x_middle**2).sum(axis=1) * (y_groups * y_middle**2).sum(axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):
            tau_c = 2 * concordance * classes / (items**2 * (classes - 1))
            return np.stack([concordance / np.sqrt(untied_x * untied_y), tau_c, shared / spread], axis=1)


def _concordance(cells: Floats, level: _Level) -> Floats:
    """Concordant less discordant pairs whose ranks of y differ first at one bit: (sets,)."""
    weights = cells[:, level.order]
    before = np.zeros((len(weights), weights.shape[1] + 1))
    ones_before = np.zeros_like(before)
    np.cumsum(weights, axis=1, out=before[:, 1:])
    np.cumsum(weights * level.bit, axis=1, out=ones_before[:, 1:])
    lower = before[:, level.group] - before[:, level.segment]
    lower_ones = ones_before[:, level.group] - ones_before[:, level.segment]
    return np.asarray((weights * (level.bit * lower - lower_ones)).sum(axis=1))


def _starts(*sorted_keys: Integers) -> Integers:
    """The indices at which a new combination of sorted keys begins."""
    is_new = np.any([np.diff(keys, prepend=-1) != 0 for keys in sorted_keys], axis=0)
    return np.flatnonzero(is_new)


def _first(*sorted_keys: Integers) -> Integers:
    """For each position the index at which its combination of sorted keys begins."""
    starts = _starts(*sorted_keys)
    return np.repeat(starts, np.diff(starts, append=len(sorted_keys[0])))
