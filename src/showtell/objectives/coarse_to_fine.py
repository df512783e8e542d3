"""Coarse-to-fine training: each stage's reward relative to the stage before (Gu et al. 2018, eq. 11-15).

    L(theta) = - sum_{i=1..N} E_{ws_i ~ p_i} r(ws_i)                                               (eq. 11)
    grad L  ~= - sum_{i=1..N} D_i grad log p_i(ws_i)                                               (eq. 12-14)
    D_i = [r(ws_i) - r(wg_i)] + [r(ws_i) - r(ws_{i-1})]                                            (eq. 15)

ws_i is a caption sampled from stage i, which is fed its own words, wg_i the stage's greedy caption. Stage 0 has no
term: the reward of its samples is a baseline of stage 1. D_i is a constant for the gradient.

Neither baseline depends on ws_i, so the expectation of D_i grad log p_i is 2 grad E r(ws_i): twice the stage's
self-critical gradient (`self_critical.py`) at the same learning rate.

`baseline_weight` and `previous_stage_weight` are the weights of the two terms of eq. 15, 1 in the paper. Whatever they
are, the expectation is their sum times grad E r(ws_i): with 1 and 0 it is the self-critical gradient of each stage.

The value of `loss` is that of eq. 11. The parts are those of self-critical training for the last stage, whose words are
the caption, and `reward_0` to `reward_N`, the mean rewards of the samples of each stage. The first step of Gu et al.
2018, the likelihood of every stage (eq. 9 and 10), is `cross_entropy` with a model of several stages: train with it
first.

Where this differs from the paper, or the paper is silent:
 1. Each stage is unrolled separately (`decoding/stages.py`), with its own random numbers. Sampling all stages' words
    in one loop would feed a stage the words of another and make ws_{i-1} depend on ws_i, which biases the gradient.
 2. With n samples of each image the gradient is the mean over them, and sample k of a stage is compared with sample k
    of the stage before.
 3. `baseline: leave_one_out` replaces r(wg_i) by the mean reward of the stage's other samples, `mean` by that of all of
    them; the paper's is `greedy`. With `sampling: beam` the caption of rank k is compared with that of rank k.
 4. Policy, reward, truncated captions and the end are those of `self_critical.py`, with its differences.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from showtell.cuda_graphs import Answer, Steps
from showtell.decoding.policy import policy_logprobs
from showtell.decoding.stages import StageView
from showtell.models import Capability, Decoder
from showtell.objectives.contract import counts_of
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig
from showtell.types import Batch, Features


class CoarseToFineConfig(SelfCriticalConfig):
    """Sampling, reward and baseline of each stage."""

    name: Literal["coarse_to_fine"] = "coarse_to_fine"  # type: ignore[assignment]
    baseline_weight: float = Field(
        1.0, ge=0, description="Weight of r(ws_i) - b_i, the first term of Gu et al. 2018, eq. 15 (there: 1)."
    )
    previous_stage_weight: float = Field(
        1.0, ge=0, description="Weight of r(ws_i) - r(ws_{i-1}), the second term of Gu et al. 2018, eq. 15 (there: 1)."
    )

    @model_validator(mode="after")
    def _has_a_term(self) -> Self:
        if not self.baseline_weight + self.previous_stage_weight:
            raise ValueError("baseline_weight and previous_stage_weight are 0, so nothing would be learned; raise one")
        return self


class CoarseToFine(SelfCritical):
    """The expected reward of each fine stage's captions."""

    config: CoarseToFineConfig
    needs: ClassVar = frozenset({Capability.STAGES})

    def _policy(self, batch: Batch, features: Features, decoder: Decoder) -> Steps[tuple[Tensor, dict[str, Tensor]]]:
        """Unroll each stage once, from coarse to fine."""
        counts, coarse = counts_of(batch), StageView(decoder, 0)
        with torch.no_grad():
            drawn = self._draw(features, coarse)
        yield self._ask_reward(drawn)
        rewards = yield Answer()
        total, of_stages = torch.zeros((), device=rewards.device), {}
        for stage in range(1, decoder.stages):
            before, own = rewards[:, :-1], StageView(decoder, stage)
            of_stages[f"reward_{stage - 1}"] = before.sum() / (counts.images * self.config.samples)
            drawn = self._draw(features, own)
            yield self._ask_reward(drawn)
            logprobs = policy_logprobs(own, drawn.outputs, drawn.samples)  # meanwhile
            rewards = yield Answer()
            advantage = self.config.baseline_weight * self._advantage(rewards)
            over_before = rewards[:, :-1] - before
            advantage = advantage + self.config.previous_stage_weight * over_before  # Gu et al. 2018, eq. 15: D_i
            # Gu et al. 2018, eq. 13: gradient; Gu et al. 2018, eq. 14: gradient
            term, parts = self._terms(drawn.samples, logprobs, rewards, advantage, counts.images)
            total = total + term  # Gu et al. 2018, eq. 11: L; Gu et al. 2018, eq. 12: gradient
        of_stages[f"reward_{decoder.stages - 1}"] = parts["reward"]
        return total, parts | of_stages
