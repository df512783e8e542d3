"""Segments of a caption: runs of words along which the subgoals of a hierarchical model keep their direction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
FIRST_TURN = 2  # index of the first word at which a dimension can turn


def turns(goals: Floats) -> Bools:
    """At which words each dimension reverses its direction: (T, G) to (T - 2, G), for the words from the third on.

    A dimension that does not change keeps its direction.
    """
    signs = np.sign(np.diff(goals, axis=0))
    for step in range(1, len(signs)):
        signs[step] = np.where(signs[step] == 0, signs[step - 1], signs[step])
    return signs[:-1] * signs[1:] < 0


def segments(goals: Floats) -> list[tuple[int, int]]:
    """First and last word of each run between words at which at least half of the dimensions turn: (T, G).

    The last word of a segment is the first word of the next, as in papers/000, Figure 3.
    """
    cuts = (np.flatnonzero(turns(goals).mean(-1) >= 0.5) + FIRST_TURN - 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(goals) - 1], strict=True))
