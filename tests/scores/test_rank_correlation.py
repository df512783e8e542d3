"""Kendall's tau and Spearman's rho: tables by hand, and SciPy on random ones with ties and copies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.scores.rank_correlation import PairedRanks

stats = pytest.importorskip("scipy.stats")


def by_scipy(x: np.ndarray, y: np.ndarray) -> list[float]:
    return [
        stats.kendalltau(x, y, variant="b")[0],
        stats.kendalltau(x, y, variant="c")[0],
        stats.spearmanr(x, y)[0],
    ]


def test_a_table_by_hand() -> None:
    # ratings 1, 1, 2, 3 of scores 1, 3, 2, 4: of 6 pairs 4 agree, 1 does not, 1 is tied in the ratings
    ranks = PairedRanks(np.array([1.0, 3, 2, 4]), np.array([1.0, 1, 2, 3]))
    tau_b, tau_c, rho = ranks.correlations(np.ones((1, 4)))[0]
    assert tau_b == pytest.approx(3 / np.sqrt(6 * 5))
    assert tau_c == pytest.approx(2 * 3 * 3 / (16 * 2))
    assert rho == pytest.approx(3 / np.sqrt(5 * 4.5))


numbers = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 40), st.integers(0, 3)), min_size=2, max_size=40)


@settings(deadline=None)
@given(numbers)
def test_it_is_what_scipy_says_of_the_copies(rows: list[tuple[int, int, int]]) -> None:
    y, x, copies = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    repeated = copies.astype(int)
    some_x, some_y = np.repeat(x, repeated), np.repeat(y, repeated)
    if len(set(some_x)) < 2 or len(set(some_y)) < 2:
        return
    weights = np.stack([copies, np.ones(len(rows))])
    np.testing.assert_allclose(PairedRanks(x, y).correlations(weights)[0], by_scipy(some_x, some_y), atol=1e-12)
    np.testing.assert_allclose(PairedRanks(y, x).correlations(weights)[0], by_scipy(some_y, some_x), atol=1e-12)


def test_thousands_of_items_are_what_scipy_says() -> None:
    rng = np.random.default_rng(0)
    for classes in (2, 4, 30, 5000):
        y = rng.integers(classes, size=5000).astype(float)
        x = np.where(rng.random(5000) < 0.3, 0.0, y / classes + rng.normal(size=5000))
        found = PairedRanks(x, y).correlations(np.ones((1, 5000)))[0]
        np.testing.assert_allclose(found, by_scipy(x, y), atol=1e-12)


def test_of_ties_alone_nothing_is_said() -> None:
    assert np.isnan(PairedRanks(np.ones(3), np.arange(3.0)).correlations(np.ones((1, 3)))).all()
    weights = np.array([[1.0, 1, 1], [3.0, 0, 0]])
    assert np.isnan(PairedRanks(np.arange(3.0), np.arange(3.0)).correlations(weights)).all(axis=1).tolist() == [
        False,
        True,
    ]
