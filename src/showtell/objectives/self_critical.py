"""Self-critical training: the gradient of the captions' own score (Anderson et al. 2018, eq. 10-11).

    L(theta) = -E_{ws ~ p_theta} r(ws)                                                         (eq. 10)
    grad L  ~=  -(r(ws) - b) grad log p_theta(ws),    b = r(wg), the model's own greedy caption (eq. 11)

which for the scores x_t before the softmax is dL/dx_t = (r(ws) - b) (p_t - onehot(ws_t)). With N samples of each image
the gradient is the mean over them, and b may be the mean of the others instead of the greedy caption's reward:

    b_n = sum_{m != n} r(ws_m) / (N - 1)                         leave_one_out (Kool et al., 2019; Luo, 2020)

`sampling: beam` with `baseline: mean` is the second stage as the authors released it: the samples are the N captions of
a beam search of the current model, the baseline is their mean reward. Gu et al. 2018 name beam search inside
training as future work; it works for each stage of `coarse_to_fine` too. Captions of a beam are chosen, not drawn, each
once whatever its probability, so this is no estimate of the gradient of eq. 10, with any baseline: it moves probability
among the most likely captions, towards those with more reward than their mean.

    dL/dtheta = -(1/N) sum_n (r(w_n) - b) grad log p_theta(w_n),   w_1 .. w_N the beam, b = sum_n r(w_n) / N

The reward is CIDEr-D against the image's captions, or a weighted sum with BLEU (`scores/reward.py`). `discriminability`
rewards a caption for fitting its image better than the others of the batch, by the same scores:

    r'(w, i) = r(w, i) - discriminability * max_{j != i} r(w, j)

after the loss for discriminability of Luo et al. 2018, whose score is a network's for retrieval. `end` counts as a
word in samples, references and document frequencies, and gets a gradient: otherwise captions learn to end abruptly
(Rennie et al., §5.2).

The value of `loss` is that of eq. 10, minus the mean reward of the samples; its gradient is that of eq. 11. Both are
means over images and samples; each caption counts once. `cross_entropy` is the weight of the per-word cross-entropy of
the reference captions, which is added.

Where this differs from the papers or the authors' code, or they are silent:
 1. The policy is the decoder in eval mode, without dropout, for samples, greedy caption and gradient. The code that
    most people use computes its samples and their gradient with dropout, and its greedy captions without.
 2. The gradient is not divided by the number of words of the samples, as in that code: this number is random and
    depends on the samples, so that dividing by it would bias the gradient.
 3. A caption that reaches the limit, `decoding.max_length`, is truncated and rewarded without `end`;
    `decoding/policy.py` defines its gradient.
 4. `pad` and `begin` are never generated and the other probabilities sum to one. "Unknown", which stands for words
    outside the vocabulary, may be generated but matches nothing in the references, so that it earns no reward.
 5. With hard attention the policy attends to the most likely region; that choice has no gradient, and the weights that
    score regions are not trained.
 6. With drawn samples, `baseline: mean` counts each sample in its own baseline, which makes the expected gradient
    (N - 1) / N times that of the other baselines.
 7. The release's beam keeps its rule against repeated words (`decoding.no_repeat_words`), its reward leaves out the
    end, and a truncated caption has the probability of its words; ours has no rule in training, rewards the end, and
    treats truncation as in 3.
 8. In eval mode (validation) the terms are those of cross-entropy, so that the loss can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, create_model, model_validator
from torch import Tensor

from showtell.config import Config, Size
from showtell.cuda_graphs import Answer, Ask, Steps, run_eagerly
from showtell.decoding import Captions
from showtell.decoding.policy import Rollouts, beam_rollouts, policy_logprobs, rollouts
from showtell.models.contract import Decoder, eval_mode
from showtell.objectives.contract import Objective, ObjectiveConfig, counts_of
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.scores import numbers, reward_numbers
from showtell.scores.reward import Reward
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Features, Terms

_WEIGHTS: dict[str, Any] = {  # a field for each number of a score that can be a reward
    name: (
        float,
        Field(
            1.0 if name == "cider" else 0.0,
            description=f"Weight of {numbers()[name].title} of the caption (0 to {numbers()[name].maximum:g}).",
        ),
    )
    for name in sorted(reward_numbers(), key=lambda name: name != "cider")
}
_Weights: Any = create_model("_Weights", __base__=Config, **_WEIGHTS)


class RewardConfig(_Weights):  # type: ignore[misc, unused-ignore]
    """Weights of the scores in the reward."""

    @property
    def weights(self) -> dict[str, float]:
        """The weights of scores other than 0, by name."""
        return {name: weight for name, weight in self.model_dump().items() if weight}

    @model_validator(mode="after")
    def _rewards(self) -> Self:
        if not any(self.model_dump().values()):
            raise ValueError("every weight is 0, so nothing would be rewarded; set cider to 1")
        return self


class SelfCriticalConfig(ObjectiveConfig):
    """Sampling, reward and baseline."""

    name: Literal["self_critical"] = "self_critical"
    sampling: Literal["multinomial", "beam"] = Field(
        "multinomial", description="Draw the captions word by word, or take those of a beam search (`baseline: mean`)."
    )
    samples: Size = Field(5, description="N, number of captions of each image in each step; of a beam, its width.")
    baseline: Literal["greedy", "leave_one_out", "mean"] = Field(
        "greedy",
        description="b, the reward of the greedy caption, or the mean of the other samples or of all of them (mean).",
    )
    reward: RewardConfig = Field(RewardConfig(), description="r, a weighted sum of scores.")
    discriminability: float = Field(
        0.0, ge=0,
        description="Weight of what a caption would earn for another photo of the batch, at most; taken away.",
    )  # fmt: skip
    cross_entropy: float = Field(0.0, ge=0, description="Weight of the cross-entropy of the reference captions.")

    @model_validator(mode="after")
    def _has_others(self) -> Self:
        if self.baseline != "greedy" and self.samples == 1:
            raise ValueError(f"baseline={self.baseline} compares samples with each other; set samples to 2 or more")
        return self


class SelfCritical(Objective):
    """The expected reward of the model's own captions."""

    config: SelfCriticalConfig
    optimises_reward: ClassVar[bool] = True

    def __init__(self, config: SelfCriticalConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.likelihood = CrossEntropy(CrossEntropyConfig(), feature_size=feature_size, vocabulary_size=vocabulary_size)
        self.reward: Reward | None = None

    def prepare(self, captions: Mapping[str, Sequence[Sequence[int]]], max_length: int) -> None:
        """Count the n-grams of the references for the reward."""
        super().prepare(captions, max_length)
        config = self.config
        self.reward = prepare_reward(
            captions, self.vocabulary_size, config.reward.weights, discriminability=config.discriminability
        )

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """Sample, reward, compare with the baseline; cross-entropy in eval mode."""
        return run_eagerly(self.steps(batch, features, decoder), batch.image_ids)

    def steps(self, batch: Batch, features: Features, decoder: Decoder) -> Steps[Terms]:
        """`forward` as steps of a graph; between them the processor computes the rewards (`cuda_graphs.py`)."""
        if not self.training:
            return self.likelihood(batch, features, decoder)
        with eval_mode(decoder):
            total, parts = yield from self._policy(batch, features, decoder)
        if self.config.cross_entropy:
            likelihood = self.likelihood(batch, features, decoder)
            total = total + self.config.cross_entropy * likelihood.total
            parts |= likelihood.parts
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    @property
    def has_fixed_shapes(self) -> bool:  # type: ignore[override]
        """Not those of a beam, whose captions are counted."""
        return self.config.sampling == "multinomial"

    def _policy(self, batch: Batch, features: Features, decoder: Decoder) -> Steps[tuple[Tensor, dict[str, Tensor]]]:
        """The policy-gradient term and its parts for the log."""
        drawn = self._draw(features, decoder)
        yield self._ask_reward(drawn)
        logprobs = policy_logprobs(decoder, drawn.outputs, drawn.samples)  # while the processor computes rewards
        rewards = yield Answer()
        return self._terms(drawn.samples, logprobs, rewards, self._advantage(rewards), counts_of(batch).images)

    def _ask_reward(self, drawn: Rollouts) -> Ask:
        """What the processor is asked to compute: the rewards of samples and greedy caption, (B, N + 1)."""

        def reward(image_ids: Sequence[str], words: Tensor, is_word: Tensor) -> Tensor:
            assert self.reward is not None, "prepare comes before the first step"
            return self.reward(words, is_word, image_ids)

        return Ask(reward, (drawn.captions.words, drawn.captions.is_word))

    def _draw(self, features: Features, decoder: Decoder) -> Rollouts:
        """Samples and the greedy caption."""
        if self.config.sampling == "multinomial":
            return rollouts(decoder, features, self.max_length, self.config.samples)
        return beam_rollouts(decoder, features, self.max_length, self.config.samples)

    def _advantage(self, rewards: Tensor) -> Tensor:
        """r(ws) - b: (B, N + 1), the greedy caption last, to (B, N)."""
        sampled, greedy = rewards[:, :-1], rewards[:, -1:]
        if self.config.baseline == "greedy":
            return sampled - greedy  # Anderson et al. 2018, eq. 11: bracket
        if self.config.baseline == "mean":
            return sampled - sampled.mean(-1, keepdim=True)
        return sampled - (sampled.sum(-1, keepdim=True) - sampled) / (sampled.shape[-1] - 1)  # the mean of the others

    def _terms(
        self, samples: Captions, logprobs: Tensor, rewards: Tensor, advantage: Tensor, images: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss, with the value of eq. 10 and the gradient of eq. 11, and its parts.

        Log-probabilities are (B, N, T), rewards (B, N + 1), advantages (B, N); `images` is their number in the step.
        """
        rewards, advantage = rewards.to(logprobs.dtype), advantage.to(logprobs.dtype)
        mean = 1 / (images * self.config.samples)
        reward = rewards[:, :-1].sum() * mean  # Anderson et al. 2018, eq. 10: E r
        # Anderson et al. 2018, eq. 11: gradient; Gu et al. 2018, eq. 13: gradient; Gu et al. 2018, eq. 14: gradient
        gradient = -(advantage.unsqueeze(-1) * logprobs).sum() * mean
        total = -reward.detach() + (gradient - gradient.detach())  # the value of the one, the gradient of the other
        parts = {
            "reward": reward,
            "greedy": rewards[:, -1].sum() / images,
            "advantage": advantage.abs().sum() * mean,  # mean distance of samples from their baseline
            "length": samples.is_word.sum() * mean,  # words, the end included
            "unfinished": (~samples.is_finished).sum() * mean,  # fraction of samples that are truncated
        }
        if self.config.sampling == "multinomial":
            parts["entropy"] = -logprobs.sum() * mean  # of the policy over captions, estimated by its samples
        return total, parts


def prepare_reward(
    captions: Mapping[str, Sequence[Sequence[int]]],
    vocabulary_size: int,
    weights: Mapping[str, float],
    *,
    discriminability: float = 0.0,
) -> Reward:
    """A reward, `end` included, by each image's captions, ids with `begin` and `end`; "unknown" matches no word."""
    # `begin` is never predicted, so it stands for "unknown" in references as a word that no caption can match.
    replaced = {Vocabulary.unknown: Vocabulary.begin}
    references = {
        image: [[replaced.get(word, word) for word in caption[1:]] for caption in own]
        for image, own in captions.items()
    }
    most = max((word for own in references.values() for caption in own for word in caption), default=0)
    size = max(vocabulary_size, most + 1)
    return Reward(references, vocabulary_size=size, weights=weights, discriminability=discriminability)
