"""What HACap's three networks learn from: papers/000 §4, with LeakGAN (Guo et al., 2018) where the paper is silent.

F_t is the discriminator's leak after t words (F_0: after begin), g_t the subgoal that the manager makes of it, y_{t+1}
the word that follows, T the words of a caption, its end included.

    discriminator   - log D(real) - log(1 - D(sampled)), or, where it sees the image,
                    - log D(real) - [log(1 - D(sampled)) + log(1 - D(real, of another image))] / 2
    manager         - sum_t Q_t cos(F_{t+c} - F_t, g_t)                         F constant; in pre-training Q = 1
    worker          - sum_t (r_t - b_t) log p(y_{t+1} | y_<=t, no end)          in pre-training the likelihood
    r_t = (1/c) sum_{i=1..c} cos(F_{t+1} - F_{t+1-i}, g_{t+1-i})                the intrinsic reward, constant
    Q_t = sigmoid(delta (1/2 - rank_t / B))                                     rank 1: the best of the B in the batch
    ranked is the reward of y_1 .. y_{t+1}: the mean of D over M captions that the policy makes of it; at the end D

`adversarial_pretraining` is the first stage: all three learn in every step, the worker and the manager from reference
captions, the discriminator from them and from samples. `adversarial` starts from such a checkpoint: all three learn in
every step, worker and manager from samples; after each `interleave` such epochs comes one of pre-training. The three
have no weight in common and no gradient from one into another (`models/goals.py`), so that one sum is minimised.
`cross_entropy` adds the likelihood of the reference captions to each adversarial step.

Where this differs from the papers, or they are silent:
 1. The policy is that of `decoding/policy.py`: the decoder as it captions photos, without dropout, `pad` and `begin`
    never said; its logits are divided by a temperature of their own.
 2. The goal of the last c steps is held against the end of the caption, min(t + c, T), so that every goal learns.
    r_t is the mean of the terms that exist: near the beginning there are fewer than c.
 3. r_t is for the word that leads to F_{t+1}. LeakGAN's formula counts the same transitions one word later.
 4. `external_weight` adds Q_t to the worker's reward, as feudal networks do (Vezhnevets et al., 2017); LeakGAN, and the
    default, leave it at 0. Q_t has a mean of its own to be held against and is for all words, the end included.
 5. Whether a caption ends at a word is no matter of r_t: the sum over t leaves the end out, and p is that of the word
    among those that continue. The end takes F_t where the last goals point, for any words, because goals near the end
    are held against F_T: it has r_t = 0.95 where other words have 0.51, on scenes, and where it was rewarded, captions
    shrank from 11 to 5 words within 32 steps, b_t or not (docs/hacap.md). LeakGAN's texts all have one length.
 6. b_t is the mean reward of the other captions of the batch at the same step (`baseline: leave_one_out`), which leaves
    the expectation of the gradient as it is. LeakGAN has none (`baseline: none`).
 7. Ranks of equal rewards are shared; of captions that have ended nothing is ranked. LeakGAN's code ranks by order of
    appearance, adds the cosines of a batch up before it weighs them, and lets a gradient into the worker's reward: none
    of that is done here.
 8. Every discriminator step draws fresh samples; LeakGAN trains it for epochs on a store of 50,000.
 9. Without rollouts (`rollouts: 0`) the reward of a prefix is D of the prefix, though D has learned whole captions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from showtell import counter_rng
from showtell.config import Size
from showtell.decoding import TeacherForcedOutput, teacher_forced
from showtell.decoding.continuation import continuations
from showtell.decoding.likelihood import log_likelihood
from showtell.decoding.policy import NEVER_GENERATED
from showtell.decoding.sampling import inverse_cdf, walk
from showtell.models import Capability, Decoder
from showtell.models.contract import eval_mode
from showtell.models.discriminator import Discriminator, DiscriminatorImage
from showtell.models.goals import GoalDecoder, GoalOutput, spread_of_directions
from showtell.objectives.contract import HealthRange, counts_of
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.processes import of_next_image, of_whole_batch
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Features, Terms

CHANCE = 2 * math.log(2)  # the discriminator's loss if it says 1/2 of everything


def horizon_cosines(leaks: Tensor, goals: Tensor, lengths: Tensor, horizon: int) -> Tensor:
    """cos(F_min(t+c, T) - F_t, g_t) for t = 0 .. T - 1.

    Args:
        leaks: F, (B, N, T + 1, G).
        goals: g, (B, N, T, G).
        lengths: (B, N) int64, words of each caption, end included.
        horizon: c.

    Returns:
        (B, N, T); 0 behind the end.
    """
    steps = torch.arange(goals.shape[2], device=leaks.device)
    reached = torch.minimum(steps + horizon, lengths.unsqueeze(-1))  # (B, N, T)
    index = reached.unsqueeze(-1).expand(*reached.shape, leaks.shape[-1])
    moved = leaks.gather(2, index) - leaks[:, :, :-1]
    return F.cosine_similarity(moved, goals, dim=-1) * (steps < lengths.unsqueeze(-1))


def intrinsic_rewards(leaks: Tensor, goals: Tensor, horizon: int) -> Tensor:
    """r_t, the mean of cos(F_{t+1} - F_{t+1-i}, g_{t+1-i}) over i = 1 .. min(c, t + 1).

    Args:
        leaks: F, (B, N, T + 1, G).
        goals: g, (B, N, T, G).
        horizon: c.

    Returns:
        (B, N, T).
    """
    steps = goals.shape[2]
    total = goals.new_zeros(goals.shape[:3])
    for back in range(1, min(horizon, steps) + 1):
        moved = leaks[:, :, back:] - leaks[:, :, :-back]  # to t + 1 from t + 1 - back
        total[:, :, back - 1 :] += F.cosine_similarity(moved, goals[:, :, : steps + 1 - back], dim=-1)
    terms = torch.arange(1, steps + 1, device=goals.device).clamp(max=horizon)
    return total / terms


def rank_rewards(rewards: Tensor, is_word: Tensor, delta: float) -> Tensor:
    """sigmoid(delta (1/2 - rank / B)) at each step, rank 1 being the best of the B rewards of words there.

    Args:
        rewards: (B, N, T).
        is_word: (B, N, T) bool.
        delta: how steep.

    Returns:
        (B, N, T); 0 where there is no word.
    """
    flat, real = rewards.flatten(0, 1), is_word.flatten(0, 1)  # (rows, T)
    both = real.unsqueeze(0) & real.unsqueeze(1)
    better = ((flat.unsqueeze(0) > flat.unsqueeze(1)) & both).sum(1)  # how many rows are above each
    level = ((flat.unsqueeze(0) == flat.unsqueeze(1)) & both).sum(1)  # itself among them
    rank = better + (level + 1) / 2
    quality = torch.sigmoid(delta * (0.5 - rank / real.sum(0).clamp(min=1)))
    return (quality * real).view_as(rewards)


class AdversarialPretrainingConfig(CrossEntropyConfig):
    """The first stage."""

    name: Literal["adversarial_pretraining"] = "adversarial_pretraining"  # type: ignore[assignment]
    samples: Size = Field(1, description="N, number of captions sampled for each image.")
    sampling_temperature: float = Field(1.0, gt=0, description="Temperature: the policy's logits are divided by it.")
    discriminator_lr_factor: float = Field(
        0.3,
        gt=0,
        description="Learning rate of the discriminator, as a multiple of `training.learning_rate` (LeakGAN: 0.05).",
    )
    discriminator_weight: float = Field(1.0, ge=0, description="Weight of the discriminator's loss.")
    manager_weight: float = Field(
        1.0,
        ge=0,
        description="Weight of the manager's loss (pre-training: a mean over words; adversarial stage: over captions).",
    )


class AdversarialPretraining(CrossEntropy):
    """Likelihood for the worker, real transitions for the manager, real and sampled captions for the discriminator."""

    config: AdversarialPretrainingConfig
    needs: ClassVar = frozenset({Capability.GOALS})
    max_length: int  # words of a sample at most, end not counted

    def prepare(self, captions: Mapping[str, Sequence[Sequence[int]]], max_length: int) -> None:
        """Keep how long captions may be."""
        super().prepare(captions, max_length)
        self.max_length = max_length

    @property
    def rates(self) -> dict[str, float]:
        """The discriminator learns at a rate of its own."""
        return {"discriminator": self.config.discriminator_lr_factor}

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of the three networks; in eval mode those of cross-entropy."""
        if not self.training:
            return super().forward(batch, features, decoder)
        decoder = self._with_goals(decoder)
        forced = teacher_forced(decoder, features, batch.inputs)
        total, parts = self._terms(batch, features, forced, decoder)
        lengths = (batch.targets != Vocabulary.pad).sum(-1)  # (B, N)
        cosines = horizon_cosines(
            self._leaks(decoder, features, batch.words).detach(), _goals(forced), lengths, decoder.horizon
        )
        manager = -cosines.sum() / counts_of(batch).words
        sampled = self._sample(features, decoder)
        discriminator, accuracy = self._discriminate(batch, features, decoder, sampled)
        total = total + self.config.manager_weight * manager + self.config.discriminator_weight * discriminator
        parts |= {"manager": manager, "discriminator": discriminator, **accuracy}
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    def _with_goals(self, decoder: Decoder) -> GoalDecoder:
        """The decoder, which has what the objective needs."""
        self.check_decoder(decoder)
        assert isinstance(decoder, GoalDecoder), "a model with goals is a GoalDecoder"
        return decoder

    @staticmethod
    def _leaks(decoder: GoalDecoder, features: Features, words: Tensor) -> Tensor:
        """F of captions that begin with begin: (B, N, T + 1) to (B, N, T + 1, G)."""
        return decoder.discriminator.leaks(words, _image_of_discriminator(decoder, features))

    @torch.no_grad()
    def _sample(self, features: Features, decoder: GoalDecoder) -> Tensor:
        """Captions of the policy, begin first, then pad behind the end: (B, N, T + 1)."""
        config, device = self.config, features.vectors.device
        numbers = counter_rng.uniform((len(features.vectors), config.samples, self.max_length + 1), device)

        def draw(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
            return inverse_cdf((logprobs / config.sampling_temperature).softmax(-1), numbers[images, :, step])

        with eval_mode(decoder):
            walked, _ = walk(decoder, features, self.max_length, config.samples, draw)
        longest = max(1, int((walked.words != Vocabulary.pad).sum(-1).max()))
        return F.pad(walked.words[..., :longest], (1, 0), value=Vocabulary.begin)

    def _discriminate(
        self, batch: Batch, features: Features, decoder: GoalDecoder, sampled: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The discriminator's loss, and the shares of real, sampled and mismatched captions that it knows as such.

        Args:
            sampled: (B, N, L + 1) int64, begin first.
        """
        counts = counts_of(batch)
        seen = _image_of_discriminator(decoder, features)
        real = batch.is_caption
        everyone = torch.ones_like(sampled[..., 0], dtype=torch.bool)
        fakes = [("sampled", sampled, seen, everyone, counts.images * sampled.shape[1])]
        beside = _features_of_next_image(features, batch.is_counted) if seen is not None else None
        if beside is not None:
            encoded = decoder.discriminator.encode_image(beside.vectors, beside.is_region)
            fakes.append(("mismatched", batch.words, encoded, real, counts.captions))
        total, parts = sampled.new_zeros((), dtype=torch.float32), {}
        for name, words, shown, is_caption, count in [("real", batch.words, seen, real, counts.captions), *fakes]:
            right, weight = (1, 1.0) if name == "real" else (-1, 1 / len(fakes))
            logits = right * verdicts(decoder.discriminator, words, shown)  # above 0: it knows
            total = total + weight * (F.softplus(-logits) * is_caption).sum() / count
            parts[f"{name}_known"] = ((logits > 0) & is_caption).sum() / count
        return total, parts


class AdversarialConfig(AdversarialPretrainingConfig):
    """The second stage."""

    name: Literal["adversarial"] = "adversarial"  # type: ignore[assignment]
    rollouts: Annotated[int, Field(ge=0, le=65_536)] = Field(
        4, description="M, number of sampled continuations of each prefix; 0 scores the prefix itself."
    )
    delta: float = Field(12.0, gt=0, description="Slope of the sigmoid that turns ranks into rewards.")
    interleave: int = Field(
        15, ge=0, description="Number of adversarial epochs before each epoch of pre-training; 0 for none."
    )
    intrinsic_weight: float = Field(1.0, ge=0, description="Weight of the intrinsic reward r_t in the worker's reward.")
    external_weight: float = Field(
        0.0, ge=0, description="Weight of the discriminator's value Q_t in the worker's reward."
    )
    baseline: Literal["leave_one_out", "none"] = Field(
        "leave_one_out", description="b_t, the mean reward of the batch's other captions at the same step, or none."
    )
    worker_weight: float = Field(1.0, ge=0, description="Weight of the worker's policy gradient, a mean over captions.")
    cross_entropy: float = Field(0.0, ge=0, description="Weight of the cross-entropy of the reference captions.")


class Adversarial(AdversarialPretraining):
    """Policy gradients for worker and manager, guided and judged by the discriminator that learns with them."""

    config: AdversarialConfig
    optimises_reward: ClassVar[bool] = True
    health_ranges: ClassVar[tuple[HealthRange, ...]] = (
        HealthRange(
            "goal_spread", "the subgoals all point one way (spread {value:.3f})",
            "the goals have collapsed and guide nothing; set model.normalise_goals=true or lower "
            "objective.manager_weight", minimum=0.01, is_collapse=True,
        ),
        HealthRange(
            "goal_norm", "the subgoals have length {value:.3g}",
            "the goals have collapsed and guide nothing; set model.normalise_goals=true",
            minimum=0.01, is_collapse=True,
        ),
        HealthRange(
            "entropy", "the policy has an entropy of {value:.3f} per word",
            "it says one thing whatever it draws, so that nothing is compared any more; lower "
            "objective.worker_weight or raise objective.cross_entropy", minimum=0.05, is_collapse=True,
        ),
        HealthRange(
            "sampled_known", "the discriminator knows {value:.0%} of the samples",
            "it has won and its rewards are all alike; lower objective.discriminator_lr_factor", maximum=0.98,
        ),
        HealthRange(
            "discriminator", f"the discriminator's loss is {{value:.3f}} and {CHANCE:.3f} is chance",
            "its rewards say nothing; train it longer in adversarial_pretraining, or let it see the image "
            "(model.discriminator_image=mean)", maximum=0.98 * CHANCE,
        ),
    )  # fmt: skip

    def __init__(self, config: AdversarialConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__(config, feature_size=feature_size, vocabulary_size=vocabulary_size)
        self.imitates = False  # whether this is an epoch of pre-training

    def begin_epoch(self, epoch: int) -> None:
        """Every few epochs there is one of pre-training."""
        super().begin_epoch(epoch)
        every = self.config.interleave
        self.imitates = bool(every) and epoch % (every + 1) == every

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of the three networks; in eval mode those of cross-entropy."""
        if not self.training or self.imitates:
            return super().forward(batch, features, decoder)
        decoder = self._with_goals(decoder)
        config = self.config
        sampled = self._sample(features, decoder)  # (B, N, T + 1)
        words = sampled[..., 1:]
        is_word = words != Vocabulary.pad
        is_not_end = is_word & (words != Vocabulary.end)
        count = counts_of(batch).images * config.samples
        with eval_mode(decoder):
            forced = teacher_forced(decoder, features, sampled[..., :-1])
            logits = _without(forced.logits.float() / config.sampling_temperature, NEVER_GENERATED)
            followed = log_likelihood(_without(logits, [Vocabulary.end]), words).masked_fill(~is_not_end, 0.0)
            rewards = self._rewards(features, decoder, words)
        goals = _goals(forced)
        leaks = self._leaks(decoder, features, sampled).detach()
        is_ranked = is_word & batch.is_counted
        quality = of_whole_batch(partial(rank_rewards, delta=config.delta), rewards, is_ranked)
        cosines = horizon_cosines(leaks, goals, is_word.sum(-1), decoder.horizon)
        manager = -(quality * cosines).sum() / count
        intrinsic = intrinsic_rewards(leaks, goals.detach(), decoder.horizon)
        advantage = self._advantage(intrinsic, is_not_end & batch.is_counted)
        worker = -config.intrinsic_weight * (advantage * followed).sum() / count
        if config.external_weight:
            word_logprobs = log_likelihood(logits, words).masked_fill(~is_word, 0.0)
            worker = (
                worker - config.external_weight * (self._advantage(quality, is_ranked) * word_logprobs).sum() / count
            )
        discriminator, parts = self._discriminate(batch, features, decoder, sampled)
        total = (
            config.worker_weight * worker
            + config.manager_weight * manager
            + config.discriminator_weight * discriminator
        )
        if config.cross_entropy:
            likelihood, words_parts = self._terms(
                batch, features, teacher_forced(decoder, features, batch.inputs), decoder
            )
            total = total + config.cross_entropy * likelihood
            parts |= words_parts
        whole = rewards.gather(-1, (is_word.sum(-1, keepdim=True) - 1)).sum() / count
        entropy = torch.special.entr(logits.detach().softmax(-1)).sum(-1)
        parts |= {
            "worker": worker, "manager": manager, "discriminator": discriminator, "verdict": whole,
            "length": is_word.sum() / count,
            "intrinsic": (intrinsic * is_not_end).sum() / is_not_end.sum() * share(batch),
            "entropy": (entropy * is_word).sum() / is_word.sum() * share(batch),
            **{name: value * share(batch) for name, value in goal_health(goals.detach(), is_word).items()},
        }  # fmt: skip
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    def _advantage(self, rewards: Tensor, is_compared: Tensor) -> Tensor:
        """Rewards (B, N, T) less what they are held against."""
        if self.config.baseline == "none":
            return rewards
        return rewards - of_whole_batch(mean_of_other_rows, rewards, is_compared)

    @torch.no_grad()
    def _rewards(self, features: Features, decoder: GoalDecoder, words: Tensor) -> Tensor:
        """How much each prefix, ended by the policy, is like a person's caption: (B, N, T) to (B, N, T)."""
        config, seen = self.config, _image_of_discriminator(decoder, features)
        begin = torch.full_like(words[..., :1], Vocabulary.begin)
        if not config.rollouts:
            leaks = decoder.discriminator.leaks(torch.cat([begin, words], -1), seen)[:, :, 1:]
            return torch.sigmoid(decoder.discriminator.logits(leaks))
        shape = (*words.shape[:2], config.rollouts, words.shape[2], self.max_length + 1)
        ended = continuations(
            decoder, features, words, counter_rng.uniform(shape, words.device), max_length=self.max_length,
            temperature=config.sampling_temperature,
        )  # fmt: skip
        longest = int((ended != Vocabulary.pad).sum(-1).max())
        flat = F.pad(ended[..., :longest].flatten(1, 3), (1, 0), value=Vocabulary.begin)  # (B, N M T, longest + 1)
        judged = torch.sigmoid(verdicts(decoder.discriminator, flat, seen))
        return judged.view(shape[:-1]).mean(2)


def _without(scores: Tensor, words: Sequence[int]) -> Tensor:
    """Scores (..., V) of a policy that never says these words."""
    return scores.index_fill(-1, torch.tensor(words, device=scores.device), float("-inf"))


def verdicts(discriminator: Discriminator, words: Tensor, seen: DiscriminatorImage | None) -> Tensor:
    """The logits of whole captions, which begin with begin: (B, N, T) to (B, N)."""
    leaks = discriminator.leaks(words, seen)
    last = (words != Vocabulary.pad).sum(-1) - 1
    index = last.clamp(min=0)[..., None, None].expand(*last.shape, 1, leaks.shape[-1])
    return discriminator.logits(leaks.gather(2, index).squeeze(2))


def mean_of_other_rows(values: Tensor, is_word: Tensor) -> Tensor:
    """At each step the mean over the other captions of the batch that have a word there; 0 where none has.

    Args:
        values: (B, N, T).
        is_word: (B, N, T) bool.

    Returns:
        (B, N, T).
    """
    kept = values * is_word
    others = is_word.sum((0, 1)) - 1  # (T,)
    return (kept.sum((0, 1)) - kept) / others.clamp(min=1) * (others > 0)


def goal_health(goals: Tensor, is_word: Tensor) -> dict[str, Tensor]:
    """How long subgoals are, and how far they spread (`models.goals.spread_of_directions`).

    Args:
        goals: (B, N, T, G).
        is_word: (B, N, T) bool.
    """
    chosen = goals[is_word].float()
    return {"goal_norm": chosen.norm(dim=-1).mean(), "goal_spread": spread_of_directions(chosen)}


def share(batch: Batch) -> float:
    """What part of the images of its step a batch has: for means, which then add up to that of the step."""
    return len(batch.image_ids) / counts_of(batch).images


def _image_of_discriminator(decoder: GoalDecoder, features: Features) -> DiscriminatorImage | None:
    """What the discriminator sees of the images; the encoder learns nothing from it."""
    return decoder.discriminator.encode_image(features.vectors.detach(), features.is_region)


def _features_of_next_image(features: Features, is_counted: bool) -> Features | None:
    """The features of the image behind each one in the whole batch; None where that is one image."""
    vectors = features.vectors
    both = of_next_image(torch.cat([vectors, features.is_region.unsqueeze(-1).to(vectors.dtype)], -1), is_counted)
    return None if both is None else Features(both[..., :-1], both[..., -1] > 0)


def _goals(forced: TeacherForcedOutput) -> Tensor:
    assert isinstance(forced.outputs, GoalOutput) and forced.outputs.goal is not None
    return forced.outputs.goal
