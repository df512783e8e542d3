"""Decoders with subgoals: what the adversarial objectives ask of a model with a manager and a discriminator."""

from __future__ import annotations

import abc
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from showtell.models.contract import Decoder, ImageT, InputsT, Output, RowsT
from showtell.models.discriminator import Discriminator


@dataclass(frozen=True, kw_only=True)
class GoalOutput(Output):
    """The output of a step that makes a subgoal."""

    goal: Tensor | None = None  # (B, N, G) g_t, with its gradient to the manager; None where it makes none


class GoalDecoder(Decoder[InputsT, ImageT, RowsT]):
    """A decoder that, with `Capability.GOALS`, follows subgoals that a manager makes of a discriminator's leak."""

    discriminator: Discriminator

    @property
    @abc.abstractmethod
    def horizon(self) -> int:
        """c, the number of steps that a subgoal looks ahead."""

    @property
    @abc.abstractmethod
    def goal_modules(self) -> tuple[nn.Module, ...]:
        """What makes the subgoals, the discriminator among them: no gradient of the words reaches it."""


def spread_of_directions(vectors: Tensor) -> Tensor:
    """How far directions spread: 1 less the length of their mean; 0 if all are alike, as of goals that have collapsed.

    Args:
        vectors: (..., n, G) of any lengths.

    Returns:
        (...).
    """
    length: Tensor = F.normalize(vectors.float(), dim=-1).mean(-2).norm(dim=-1)
    return 1 - length
