"""The learning rate as a function of the step, so that there is no state to save."""

from __future__ import annotations

import math
from typing import Literal


def learning_rate_factor(step: int, steps: int, warmup: int, kind: Literal["constant", "linear", "cosine"]) -> float:
    """What the learning rate is multiplied by.

    Args:
        step: of the optimiser, from 0.
        steps: of the whole run.
        warmup: steps in which the factor rises from 1/warmup to 1.
        kind: how it goes on: 1, or from 1 down to 0 along a line or half a cosine.
    """
    if step < warmup:
        return (step + 1) / warmup
    if kind == "constant":
        return 1.0
    share = (step - warmup) / max(1, steps - warmup)
    return 1 - share if kind == "linear" else 0.5 * (1 + math.cos(math.pi * share))
