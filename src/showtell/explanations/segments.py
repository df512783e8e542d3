"""Segments of a caption: stretches of words along which the subgoals of a hierarchical model keep their direction."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
FIRST = 2  # the first word at which anything can turn


def turns(goals: Floats) -> Bools:
    """At which words each dimension sets out the other way: (T, G) to (T - 2, G), of the words from the third on.

    A dimension that stays as it is goes on as it did.
    """
    signs = np.sign(np.diff(goals, axis=0))
    for step in range(1, len(signs)):
        signs[step] = np.where(signs[step] == 0, signs[step - 1], signs[step])
    return signs[:-1] * signs[1:] < 0


def segments(goals: Floats) -> list[tuple[int, int]]:
    """First and last word of each stretch between words from which half of the dimensions or more turn: (T, G).

    A word at which a segment ends is the first one of the next, as in papers/000, Figure 3.
    """
    cuts = (np.flatnonzero(turns(goals).mean(-1) >= 0.5) + FIRST - 1).tolist()
    return list(zip([0, *cuts], [*cuts, len(goals) - 1], strict=True))
