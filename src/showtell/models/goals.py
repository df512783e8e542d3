"""Decoders with subgoals: the interface that the adversarial objectives need."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from showtell.models.contract import Decoder, ImageT, InputsT, Output, RowsT
from showtell.models.discriminator import Discriminator


@dataclass(frozen=True, kw_only=True)
class GoalOutput(Output):
    """The output of a step with a subgoal."""

    goal: Tensor | None = None  # (B, N, G) g_t, with its gradient to the manager; None without goals


class GoalDecoder(Decoder[InputsT, ImageT, RowsT]):
    """A decoder that, with `Capability.GOALS`, follows a manager's subgoals, computed from the leaked feature."""

    discriminator: Discriminator
    horizon: int  # c, the number of steps that a subgoal looks ahead


def spread_of_directions(vectors: Tensor) -> Tensor:
    """Spread of directions: 1 minus the length of their mean; 0 if all are alike, as for collapsed goals.

    Args:
        vectors: (..., n, G) of any lengths.

    Returns:
        (...).
    """
    length: Tensor = F.normalize(vectors.float(), dim=-1).mean(-2).norm(dim=-1)
    return 1 - length
