"""The learning rate as a function of the step, so that there is no state to save."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine", "inverse_sqrt", "step"]
DECAYS_OVER_THE_RUN: tuple[Schedule, ...] = ("linear", "cosine")  # the others do not depend on the number of epochs


def learning_rate_factor(
    step: int, steps: int, warmup: int, kind: Schedule, *, decay_steps: int = 1, decay_factor: float = 1.0
) -> float:
    """What the learning rate is multiplied by at a step, from 0; `decay_steps` are those between two decays.

    With `inverse_sqrt` it is the factor of Vaswani et al. (2017, §5.3) over its greatest, which the learning rate has.
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
