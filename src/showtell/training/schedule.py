"""The learning rate as a function of the step, so that there is no state to save."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine", "inverse_sqrt", "step"]
DECAYS_OVER_THE_RUN: tuple[Schedule, ...] = ("linear", "cosine")  # the others do not depend on the number of epochs


def learning_rate_factor(
    step: int, steps: int, warmup: int, kind: Schedule, *, decay_steps: int = 1, decay_factor: float = 1.0
) -> float:
    """What the learning rate is multiplied by.

    Args:
        step: of the optimiser, from 0.
        steps: of the whole run.
        warmup: steps in which the factor rises from 1/warmup to 1.
        kind: after the warm-up constant 1, linear or cosine decay from 1 to 0, the inverse square root of the number of
            steps, or decay in steps. With `inverse_sqrt` the factor is that of Vaswani et al. (2017, §5.3) over its
            greatest, d^-0.5 warmup^-0.5, which belongs to the learning rate.
        decay_steps: between two decays of kind step, counted from the beginning of the run.
        decay_factor: at each decay of kind step.
    """
    if step < warmup:
        return (step + 1) / warmup
    if kind == "constant":
        return 1.0
    if kind == "inverse_sqrt":
        return math.sqrt(max(1, warmup) / (step + 1))
    if kind == "step":
        return float(decay_factor ** (step // decay_steps))
    share = (step - warmup) / max(1, steps - warmup)
    return 1 - share if kind == "linear" else 0.5 * (1 + math.cos(math.pi * share))
