"""Stochastic "hard" attention: REINFORCE over the attended regions (Xu et al. 2015, §4.1).

    dL/dW ~ d log p(y | s, a) / dW  +  lambda_r (log p(y | s, a) - b) d log p(s | a) / dW  +  lambda_e dH[s] / dW
    b_k = 0.9 b_{k-1} + 0.1 log p(y | s_k, a)

where s is one sampled region per word, p(s | a) = prod_t alpha_{t, s_t} and H[s] the entropy of alpha. The loss
has that gradient with the opposite sign; the factor (log p - b) is a constant for it.

    loss = - (1/words) sum [ log p(y | s, a) + lambda_r (log p(y | s, a) - b) log p(s | a) + lambda_e H[s] ]

The sampling itself, and the choice between sample and expectation, are the model's (`models/sat.py`).

Where this differs from the paper, or the paper is silent:
 1. The sum is divided by the number of words of the batch, as in `cross_entropy.py`. That scales the three terms
    equally. N is 1.
 2. In that factor log p(y | s, a) is the caption's mean over its words, as in the authors' release, whose lambdas
    (0.1 and 0.002) are for the mean; `per_word: false` is the sum, the formula of the paper.
 3. b is a moving average of the mean over the batch's captions, over all processes, as in the release. A batch uses the
    value from before it, so that b does not depend on the samples it is compared with; the first batch uses its own
    mean. `baseline: none` sets b to 0, to see what it does: the estimator stays unbiased and its variance grows.
 4. Rows that use the expectation have no sampled region: they contribute the first term alone, and nothing to b.
 5. The other terms of `cross_entropy.py` (label smoothing, doubly stochastic penalty, word presence) may be added, and
    scheduled sampling: s then also depends on the words that were fed, whose choice gets no gradient here either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from accelerate.state import PartialState
from pydantic import Field
from torch import Tensor

from showtell.decoding import TeacherForcedOutput
from showtell.models import Capability, Decoder
from showtell.models.kernels import log_likelihood
from showtell.objectives.contract import counts_of
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.processes import sum_over_processes
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Features


class HardAttentionConfig(CrossEntropyConfig):
    """Weights of the terms that cross-entropy does not have."""

    name: Literal["hard_attention"] = "hard_attention"  # type: ignore[assignment]
    reinforce: float = Field(0.1, ge=0, description="lambda_r, weight of the REINFORCE term of the sampled positions.")
    entropy: float = Field(0.002, ge=0, description="lambda_e, weight of the entropy of the attention.")
    baseline: Literal["moving_average", "none"] = Field(
        "moving_average", description="b of Xu et al. 2015, §4.1, the moving average of the reward, or none."
    )
    baseline_decay: float = Field(0.9, ge=0, lt=1, description="Decay of the moving average baseline b.")
    per_word: bool = Field(
        True, description="Reward with the mean of log p(y_t | s, a) over a caption's words; if false, with the sum."
    )


class HardAttention(CrossEntropy):
    """Likelihood of the reference captions under sampled attention, and REINFORCE for the sampled regions."""

    config: HardAttentionConfig
    needs: ClassVar = frozenset({Capability.SAMPLED_ATTENTION})
    conflicts: ClassVar[Mapping[Capability, str]] = {}
    baseline: Tensor  # () b
    is_first: Tensor  # () bool, True until b is set by a batch

    def __init__(self, config: HardAttentionConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_size=feature_size, vocabulary_size=vocabulary_size)
        self.register_buffer("baseline", torch.zeros(()))
        self.register_buffer("is_first", torch.ones((), dtype=torch.bool))

    @property
    def has_fixed_shapes(self) -> bool:  # type: ignore[override]
        """Not where the baseline is a mean over several processes, which then wait for each other."""
        return PartialState().num_processes == 1 or self.config.baseline == "none"

    def _terms(
        self, batch: Batch, features: Features, forced: TeacherForcedOutput, decoder: Decoder
    ) -> tuple[Tensor, dict[str, Tensor]]:
        total, parts = super()._terms(batch, features, forced, decoder)
        if not self.training:  # eval mode samples no regions to reward
            return total, parts
        regions, alpha = forced.outputs.sampled_regions, forced.outputs.attention
        assert regions is not None and alpha is not None, "a model that samples attention returns both in training"
        is_word = batch.targets != Vocabulary.pad  # (B, N, T)
        counts = counts_of(batch)
        is_sampled = is_word & (regions >= 0)
        is_caption = is_sampled.any(-1)  # (B, N)
        logprob = log_likelihood(forced.logits.detach(), batch.targets)
        reward = (logprob * is_word).sum(-1)  # (B, N)
        if self.config.per_word:
            reward = reward / is_word.sum(-1).clamp(min=1)
        baseline = torch.zeros_like(self.baseline)
        if self.config.baseline == "moving_average":
            baseline = self._baseline(reward, is_caption & (not batch.is_dummy))
        advantage = reward - baseline  # Xu et al. 2015, §4.1: log p - b
        log_alpha = alpha.float().clamp(min=torch.finfo(torch.float32).tiny).log()
        logprob_of_region = log_alpha.gather(-1, regions.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        # Xu et al. 2015, §4.1: REINFORCE
        reinforce = -(advantage.unsqueeze(-1) * logprob_of_region * is_sampled).sum() / counts.words
        entropy = -((alpha * log_alpha).sum(-1) * is_sampled).sum() / counts.words  # Xu et al. 2015, §4.1: H[s]
        parts |= {"reinforce": reinforce, "entropy": entropy}
        # Parts add up over the batches of a step: this one to the mean baseline of its captions.
        parts["baseline"] = baseline * batch.is_caption.sum() / counts.captions
        # Xu et al. 2015, §4.1: dL_s/dW
        return total + self.config.reinforce * reinforce - self.config.entropy * entropy, parts

    @torch.no_grad()
    def _baseline(self, reward: Tensor, is_caption: Tensor) -> Tensor:
        """b before this batch; then update it towards the batch's mean."""
        total, count = sum_over_processes(torch.stack([(reward * is_caption).sum(), is_caption.sum()])).unbind()
        mean = torch.where(count > 0, total / count.clamp(min=1), self.baseline)
        before = torch.where(self.is_first, mean, self.baseline)
        self.baseline.copy_(torch.lerp(mean, before, self.config.baseline_decay))  # Xu et al. 2015, §4.1: b_k
        self.is_first &= count == 0
        return before
