"""Losses of HACap's three networks: HACap §4, with LeakGAN (Guo et al., 2018) where the paper is silent.

F_t is the feature that the discriminator leaks after t words (F_0: after begin), g_t the subgoal that the manager
computes from it, y_{t+1} the next word, T the number of words of a caption, its end included.

    discriminator   - log D(real) - log(1 - D(sampled)), or, with an image input,
                    - log D(real) - [log(1 - D(sampled)) + log(1 - D(real, of another image))] / 2
    manager         - sum_t Q_t cos(F_{t+c} - F_t, g_t)                         F constant; in pre-training Q = 1
    worker          - sum_t (r_t - b_t) log p(y_{t+1} | y_<=t, no end)          in pre-training the likelihood
    r_t = (1/c) sum_{i=1..c} cos(F_{t+1} - F_{t+1-i}, g_{t+1-i})                the intrinsic reward, constant
    Q_t = sigmoid(delta (1/2 - rank_t / B))                                     rank 1: the best of the B in the batch
    The ranked reward of y_1 .. y_{t+1} is the mean of D over M continuations by the policy; at the end D itself.

`adversarial_pretraining` is the first stage: every step trains all three, the worker and the manager on reference
captions, the discriminator on them and on samples. `adversarial` starts from such a checkpoint: every step trains all
three, worker and manager on samples; one step of pre-training comes before each `interleave` such steps. The three
share no weights and no gradient flows from one into another (`models/hacap.py`), so that one sum is minimised.
`cross_entropy` adds the likelihood of the reference captions to each adversarial step.

Where this differs from the papers, or they are silent:
 1. The policy is that of `decoding/policy.py`: the decoder in eval mode, without dropout, and without `pad` and
    `begin`.
 2. The goals of the last c steps are compared with the end of the caption, min(t + c, T), so that every goal is
    trained. r_t is the mean of the available terms, fewer than c near the beginning.
 3. r_t rewards the word that leads to F_{t+1}. LeakGAN's formula assigns the same transitions to the next word.
 4. `external_weight` adds Q_t to the worker's reward, as feudal networks do (Vezhnevets et al., 2017); LeakGAN, and the
    default, leave it at 0. Q_t has a baseline of its own and is for all words, the end included.
 5. r_t does not reward the end: the sum over t leaves it out, and p is renormalised without it. The end moves F_t in
    the direction of the last goals whatever the words are, because goals near the end are compared with F_T: on scenes
    it has r_t = 0.95, other words 0.51; with a reward for the end, captions shrank from 11 to 5 words within 32 steps,
    with b_t and without (docs/hacap.md). LeakGAN's texts all have one length.
 6. b_t is the mean reward of the other captions of the batch at the same step (`leave_one_out`), which does not
    change the expectation of the gradient. LeakGAN has none (`baseline: none`).
 7. Equal rewards share their rank; captions that have ended are not ranked. LeakGAN's code ranks ties by order of
    appearance, sums the cosines of a batch before weighting them, and does not detach the worker's reward; ours does
    none of that.
 8. Every discriminator step draws new samples; LeakGAN trains it for epochs on a fixed set of 50,000. After 15
    adversarial steps its release pre-trains for a twentieth of an epoch; `interleave` spreads that evenly.
 9. Without rollouts (`rollouts: 0`) the reward of a prefix is D of the prefix, although D is trained on whole captions.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from showtell import counter_rng
from showtell.config import Size
from showtell.cuda_graphs import run_eagerly
from showtell.decoding import TeacherForcedOutput, teacher_forced
from showtell.decoding.continuation import continuations
from showtell.decoding.rules import NEVER_GENERATED, NO_RULES, LogitsProcessor, mask_words
from showtell.decoding.sampling import inverse_cdf, walk
from showtell.models.contract import Capability, Decoder, eval_mode
from showtell.models.discriminator import Discriminator, DiscriminatorImage, GoalDecoder, GoalOutput
from showtell.models.kernels import log_likelihood
from showtell.objectives.contract import counts_of
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.processes import over_whole_batch, roll_images
from showtell.text.vocabulary import Vocabulary
from showtell.types import Batch, Features, Terms


def horizon_cosines(leaked: Tensor, goals: Tensor, lengths: Tensor, horizon: int) -> Tensor:
    """cos(F_min(t+c, T) - F_t, g_t), (B, N, T), 0 after the end; F (B, N, T + 1, G), g (B, N, T, G), lengths (B, N)."""
    steps = torch.arange(goals.shape[2], device=leaked.device)
    ends = torch.minimum(steps + horizon, lengths.unsqueeze(-1))  # (B, N, T)
    index = ends.unsqueeze(-1).expand(*ends.shape, leaked.shape[-1])
    moved = leaked.gather(2, index) - leaked[:, :, :-1]
    return F.cosine_similarity(moved, goals, dim=-1) * (steps < lengths.unsqueeze(-1))  # HACap LeakGAN: cos


def intrinsic_rewards(leaked: Tensor, goals: Tensor, horizon: int) -> Tensor:
    """r_t, the mean of cos(F_{t+1} - F_{t+1-i}, g_{t+1-i}), i = 1 .. min(c, t + 1): F (B, N, T + 1, G) to (B, N, T)."""
    steps = goals.shape[2]
    total = goals.new_zeros(goals.shape[:3])
    for back in range(1, min(horizon, steps) + 1):
        moved = leaked[:, :, back:] - leaked[:, :, :-back]  # to t + 1 from t + 1 - back
        total[:, :, back - 1 :] += F.cosine_similarity(moved, goals[:, :, : steps + 1 - back], dim=-1)
    return total / torch.arange(1, steps + 1, device=goals.device).clamp(max=horizon)  # HACap LeakGAN: r_t


def rank_rewards(rewards: Tensor, is_word: Tensor, delta: float) -> Tensor:
    """sigmoid(delta (1/2 - rank / B)) of the B rewards of words at a step, the best of rank 1; 0 without a word."""
    flat, real = rewards.flatten(0, 1), is_word.flatten(0, 1)  # (rows, T)
    both = real.unsqueeze(0) & real.unsqueeze(1)
    better = ((flat.unsqueeze(0) > flat.unsqueeze(1)) & both).sum(1)  # number of rows with a higher reward
    level = ((flat.unsqueeze(0) == flat.unsqueeze(1)) & both).sum(1)  # rows with an equal reward, itself included
    rank = better + (level + 1) / 2
    quality = torch.sigmoid(delta * (0.5 - rank / real.sum(0).clamp(min=1)))  # HACap LeakGAN: Q_t
    return (quality * real).view_as(rewards)


class AdversarialPretrainingConfig(CrossEntropyConfig):
    """Settings of the first stage."""

    name: Literal["adversarial_pretraining"] = "adversarial_pretraining"  # type: ignore[assignment]
    samples: Size = Field(1, description="N, number of captions sampled for each image.")
    discriminator_lr_factor: float = Field(
        0.3, gt=0, description="Learning rate of the discriminator over `training.learning_rate` (LeakGAN: 0.05)."
    )
    discriminator_weight: float = Field(1.0, ge=0, description="Weight of the discriminator's loss.")
    manager_weight: float = Field(1.0, ge=0, description="Weight of the manager's loss.")


class AdversarialPretraining(CrossEntropy):
    """Train worker and manager on reference captions, and the discriminator on reference against sampled captions."""

    config: AdversarialPretrainingConfig
    needs: ClassVar = frozenset({Capability.GOALS})
    has_fixed_shapes = False  # samples and their continuations are as long as they are

    @property
    def rates(self) -> dict[str, float]:
        """The discriminator's factor of the learning rate."""
        return {"discriminator": self.config.discriminator_lr_factor}

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of the three networks; in eval mode those of cross-entropy."""
        if not self.training:
            return super().forward(batch, features, decoder)
        assert isinstance(decoder, GoalDecoder), "recipes are checked for a model with subgoals"
        forced = teacher_forced(decoder, features, batch.inputs)
        total, parts = self._terms(batch, features, forced, decoder)
        lengths = (batch.targets != Vocabulary.pad).sum(-1)  # (B, N)
        image = _image_of_discriminator(decoder, features)
        leaked = decoder.discriminator.leaked_features(batch.words, image).detach()
        cosines = horizon_cosines(leaked, _goals(forced), lengths, decoder.horizon)
        manager = -cosines.sum() / counts_of(batch).words
        sampled = self._sample(features, decoder)
        discriminator, accuracy = self._discriminate(batch, features, decoder, sampled)
        total = total + self.config.manager_weight * manager + self.config.discriminator_weight * discriminator
        parts |= {"manager": manager, "discriminator": discriminator, **accuracy}
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    @torch.no_grad()
    def _sample(self, features: Features, decoder: GoalDecoder) -> Tensor:
        """Captions sampled from the policy, begin first, padded after the end: (B, N, T + 1)."""
        config, device = self.config, features.vectors.device
        numbers = counter_rng.uniform((len(features.vectors), config.samples, self.max_length + 1), device)

        def draw(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
            return inverse_cdf(logprobs.softmax(-1), numbers[images, :, step])

        with eval_mode(decoder):
            processor = LogitsProcessor(NO_RULES, max_length=self.max_length, device=device)
            rollout, _ = run_eagerly(walk(decoder, features, config.samples, draw, processor))
        longest = max(1, int((rollout.words != Vocabulary.pad).sum(-1).max()))
        return F.pad(rollout.words[..., :longest], (1, 0), value=Vocabulary.begin)

    def _discriminate(
        self, batch: Batch, features: Features, decoder: GoalDecoder, sampled: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The discriminator's loss, and its accuracy on real, sampled, (B, N, L + 1), and mismatched captions."""
        counts = counts_of(batch)
        image = _image_of_discriminator(decoder, features)
        real = batch.is_caption
        all_captions = torch.ones_like(sampled[..., 0], dtype=torch.bool)
        fakes = [("sampled", sampled, image, all_captions, counts.images * sampled.shape[1])]
        if image is not None:
            present = features.is_region.unsqueeze(-1).to(features.vectors.dtype)
            following = roll_images(torch.cat([features.vectors, present], -1), batch.is_dummy)
            if following is not None:
                next_image = decoder.discriminator.encode_image(following[..., :-1], following[..., -1] > 0)
                fakes.append(("mismatched", batch.words, next_image, real, counts.captions))
        total, parts = sampled.new_zeros((), dtype=torch.float32), {}
        for name, words, encoded, is_caption, count in (("real", batch.words, image, real, counts.captions), *fakes):
            sign, weight = (1, 1.0) if name == "real" else (-1, 1 / len(fakes))
            logits = sign * verdicts(decoder.discriminator, words, encoded)  # above 0: classified correctly
            total = total + weight * (F.softplus(-logits) * is_caption).sum() / count  # HACap LeakGAN: discriminator
            parts[f"{name}_known"] = ((logits > 0) & is_caption).sum() / count
        return total, parts


class AdversarialConfig(AdversarialPretrainingConfig):
    """Settings of the second stage."""

    name: Literal["adversarial"] = "adversarial"  # type: ignore[assignment]
    rollouts: Annotated[int, Field(ge=0, le=65_536)] = Field(
        4, description="M, number of sampled continuations of each prefix; 0 scores the prefix itself."
    )
    delta: float = Field(12.0, gt=0, description="Slope of the sigmoid that turns ranks into rewards.")
    interleave: int = Field(
        1, ge=0, description="Number of adversarial steps after each step of pre-training; 0: all are adversarial."
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
    """Policy gradients for worker and manager, with rewards from the discriminator, which is trained with them."""

    config: AdversarialConfig
    needs: ClassVar = frozenset({Capability.MANAGER})
    optimises_reward: ClassVar[bool] = True
    is_pretraining_step = False  # set by `begin_step`

    def begin_step(self, step: int, epoch: int) -> None:
        """Choose a step of pre-training or, after each of them, `interleave` adversarial ones."""
        super().begin_step(step, epoch)
        every = self.config.interleave
        self.is_pretraining_step = bool(every) and step % (every + 1) == 0

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The terms of the three networks; in eval mode those of cross-entropy."""
        if not self.training or self.is_pretraining_step:
            return super().forward(batch, features, decoder)
        assert isinstance(decoder, GoalDecoder), "recipes are checked for a model with subgoals"
        config = self.config
        sampled = self._sample(features, decoder)  # (B, N, T + 1)
        words = sampled[..., 1:]
        is_word = words != Vocabulary.pad
        is_not_end = is_word & (words != Vocabulary.end)
        count = counts_of(batch).images * config.samples
        with eval_mode(decoder):
            forced = teacher_forced(decoder, features, sampled[..., :-1])
            logits = mask_words(forced.logits.float(), NEVER_GENERATED)
            without_end = log_likelihood(mask_words(logits, [Vocabulary.end]), words).masked_fill(~is_not_end, 0.0)
            rewards = self._rewards(features, decoder, words)
        goals = _goals(forced)
        image = _image_of_discriminator(decoder, features)
        leaked = decoder.discriminator.leaked_features(sampled, image).detach()  # F, (B, N, T + 1, G)
        is_ranked = is_word & (not batch.is_dummy)
        quality = over_whole_batch(partial(rank_rewards, delta=config.delta), rewards, is_ranked)
        cosines = horizon_cosines(leaked, goals, is_word.sum(-1), decoder.horizon)
        manager = -(quality * cosines).sum() / count  # HACap LeakGAN: manager
        intrinsic = intrinsic_rewards(leaked, goals.detach(), decoder.horizon)
        advantage = self._advantage(intrinsic, is_not_end & (not batch.is_dummy))
        worker = -config.intrinsic_weight * (advantage * without_end).sum() / count  # HACap LeakGAN: worker
        if config.external_weight:
            word_logprobs = log_likelihood(logits, words).masked_fill(~is_word, 0.0)
            external = (self._advantage(quality, is_ranked) * word_logprobs).sum()
            worker = worker - config.external_weight * external / count
        discriminator, parts = self._discriminate(batch, features, decoder, sampled)
        total = config.worker_weight * worker + config.manager_weight * manager
        total = total + config.discriminator_weight * discriminator
        if config.cross_entropy:
            given = teacher_forced(decoder, features, batch.inputs)
            likelihood, words_parts = self._terms(batch, features, given, decoder)
            total = total + config.cross_entropy * likelihood
            parts |= words_parts
        verdict = rewards.gather(-1, (is_word.sum(-1, keepdim=True) - 1)).sum() / count
        entropy = torch.special.entr(logits.detach().softmax(-1)).sum(-1)
        parts |= {
            "worker": worker, "manager": manager, "discriminator": discriminator, "verdict": verdict,
            "length": is_word.sum() / count,
            "intrinsic": (intrinsic * is_not_end).sum() / is_not_end.sum() * fraction_of_step(batch),
            "entropy": (entropy * is_word).sum() / is_word.sum() * fraction_of_step(batch),
            **{name: value * fraction_of_step(batch) for name, value in goal_health(goals.detach(), is_word).items()},
        }  # fmt: skip
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    def _advantage(self, rewards: Tensor, is_compared: Tensor) -> Tensor:
        """Rewards (B, N, T) minus their baseline."""
        if self.config.baseline == "none":
            return rewards
        return rewards - over_whole_batch(mean_of_other_rows, rewards, is_compared)

    @torch.no_grad()
    def _rewards(self, features: Features, decoder: GoalDecoder, words: Tensor) -> Tensor:
        """The reward of each prefix: mean D of its continuations by the policy, (B, N, T) to (B, N, T)."""
        config, image = self.config, _image_of_discriminator(decoder, features)
        begin = torch.full_like(words[..., :1], Vocabulary.begin)
        if not config.rollouts:
            leaked = decoder.discriminator.leaked_features(torch.cat([begin, words], -1), image)[:, :, 1:]
            return torch.sigmoid(decoder.discriminator.logits(leaked))
        shape = (*words.shape[:2], config.rollouts, words.shape[2], self.max_length + 1)
        numbers = counter_rng.uniform(shape, words.device)
        ended = continuations(decoder, features, words, numbers, max_length=self.max_length)
        longest = int((ended != Vocabulary.pad).sum(-1).max())
        flat = F.pad(ended[..., :longest].flatten(1, 3), (1, 0), value=Vocabulary.begin)  # (B, N M T, longest + 1)
        probabilities = torch.sigmoid(verdicts(decoder.discriminator, flat, image))
        return probabilities.view(shape[:-1]).mean(2)  # HACap LeakGAN: rollouts


def verdicts(discriminator: Discriminator, words: Tensor, image: DiscriminatorImage | None) -> Tensor:
    """The discriminator's logits of whole captions, begin first: (B, N, T) to (B, N)."""
    leaked = discriminator.leaked_features(words, image)
    last = (words != Vocabulary.pad).sum(-1) - 1
    index = last.clamp(min=0)[..., None, None].expand(*last.shape, 1, leaked.shape[-1])
    return discriminator.logits(leaked.gather(2, index).squeeze(2))


def mean_of_other_rows(values: Tensor, is_word: Tensor) -> Tensor:
    """The mean at each step over the batch's other captions that have a word there, 0 if there is none: (B, N, T)."""
    kept = values * is_word
    others = is_word.sum((0, 1)) - 1  # (T,)
    return (kept.sum((0, 1)) - kept) / others.clamp(min=1) * (others > 0)


def goal_health(goals: Tensor, is_word: Tensor) -> dict[str, Tensor]:
    """Mean length of subgoals, (B, N, T, G), and 1 minus the length of their mean direction: 0 for collapsed goals."""
    chosen = goals[is_word].float()
    spread = 1 - F.normalize(chosen, dim=-1).mean(-2).norm(dim=-1)
    return {"goal_norm": chosen.norm(dim=-1).mean(), "goal_spread": spread}


def fraction_of_step(batch: Batch) -> Tensor:
    """The fraction of its step's images in a batch: means weighted by it add up to the mean over the step."""
    return len(batch.image_ids) / counts_of(batch).images


def _image_of_discriminator(decoder: GoalDecoder, features: Features) -> DiscriminatorImage | None:
    """Images encoded for the discriminator, whose loss gives the image encoder no gradient."""
    return decoder.discriminator.encode_image(features.vectors.detach(), features.is_region)


def _goals(forced: TeacherForcedOutput) -> Tensor:
    assert isinstance(forced.outputs, GoalOutput) and forced.outputs.goal is not None
    return forced.outputs.goal
