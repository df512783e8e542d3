"""Cross-entropy of the reference captions, with the additional terms of the papers.

    L = (1/words) sum over captions of L_d,
        L_d = - sum_t log p(y_t | y_<t, a) + lambda sum_i (1 - sum_t alpha_ti)^2   penalty (Xu et al. 2015, §4.2.1)
                    + nu sum_{t names an object} l_t            supervised attention (`attention_supervision.py`)
      + mu (1/images) sum_w kappa_w^2 H(present_w, sigmoid(log sum_i exp(u_w . a_i + b_w)))     word presence (ours)
      + nu (1/captions) sum over captions of 1/V sum_{y in caption} sum_{w not in it} max(0, 1 - s_y + s_w)
                                                                              labels (El Baz 2020, the report's own run)

Scheduled sampling (Bengio et al., 2015) feeds the model some of its own words (`decoding/scheduled.py`); their
probability grows with the epochs, as in the code behind El Baz 2020: 0.05 more every 5 epochs, up to 0.25.

For a decoder with several stages the likelihoods of all stages are summed (Gu et al. 2018, eq. 9 and 10). The parts are
then `words_0`, `words_1`, ... and `words`, that of the last stage, whose words are the caption; validation reports it,
so that it can be compared with models with one stage. `earlier_stage_weight` is the weight of the stages before the
last, 1 in the paper. At 0 they are scored without gradients: the last stage alone is supervised.

Label smoothing epsilon mixes the target with the uniform distribution over the vocabulary (Szegedy et al., 2016).

Word presence predicts from the encoder alone which words occur in any of the image's captions: each grid cell scores
each word, log-sum-exp over the cells is a soft maximum, and the captions are the only labels (multiple-instance
learning as in Fang et al., 2015, with log-sum-exp for their noisy-or). It gives an encoder that is trained from scratch
a direct gradient; its layer is trained with the model and is not saved in the checkpoint.

Most words of a caption ("there", "with") do not depend on the picture and add only noise to this term. So each word is
weighted by the agreement of an image's captions on it beyond chance, Fleiss' kappa (1971) with the captions as raters:
near 0.7 for colours and shapes, 0 for "there". Agreement is undefined for images with one caption; if no image has two,
all weights are 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Config
from showtell.decoding import TeacherForcedOutput, scheduled, teacher_forced
from showtell.models import Capability, Decoder
from showtell.models.kernels import log_likelihood
from showtell.objectives.attention_supervision import AttentionSupervisionConfig, attention_loss
from showtell.objectives.contract import Objective, ObjectiveConfig, counts_of
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Batch, Features, NamingWords, Terms

WORD_BIAS = -6.0  # of word presence before training: few words occur, and with 36 cells each starts at 8%


class ScheduledSamplingConfig(Config):
    """Probability of feeding the model a word of its own instead of the caption's."""

    max_probability: float = Field(
        0.0, ge=0, le=1, description="Maximum probability; 0 turns scheduled sampling off (teacher forcing)."
    )
    increment: float = Field(
        0.05, ge=0, le=1, description="Increase of the probability every `increment_epochs` epochs."
    )
    increment_epochs: int = Field(5, ge=1, description="Number of epochs between increases.")

    def probability(self, epoch: int) -> float:
        """The probability in an epoch, counted from 0."""
        return min(self.max_probability, self.increment * (epoch // self.increment_epochs))


class CrossEntropyConfig(ObjectiveConfig):
    """Weights of the terms."""

    name: Literal["cross_entropy"] = "cross_entropy"
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="epsilon, probability that is spread uniformly over the vocabulary."
    )
    doubly_stochastic: float = Field(
        0.0, ge=0,
        description="lambda, weight of the penalty for attention that leaves cells out (Xu et al. 2015, §4.2.1).",
    )  # fmt: skip
    earlier_stage_weight: float = Field(
        1.0, ge=0, description="Weight of the likelihood of each stage before the last (Gu et al. 2018, eq. 10: 1)."
    )
    word_presence: float = Field(
        0.0, ge=0, description="mu, weight of the auxiliary loss that predicts which words occur in the captions."
    )
    multi_label: float = Field(
        0.0, ge=0, description="nu, weight of the margin loss of a caption's words (El Baz 2020: 10)."
    )
    attention_supervision: AttentionSupervisionConfig = Field(
        AttentionSupervisionConfig(), description="Loss of the attention of words that name an object with a box."
    )
    scheduled_sampling: ScheduledSamplingConfig = Field(
        ScheduledSamplingConfig(), description="Probability of feeding the model's own words instead of the caption's."
    )


class CrossEntropy(Objective):
    """Likelihood of the reference captions."""

    config: CrossEntropyConfig
    conflicts: ClassVar[Mapping[Capability, str]] = {
        Capability.SAMPLED_ATTENTION: "sampled regions get no gradient from it"
    }
    setting_needs: ClassVar[Mapping[str, Capability]] = {
        "earlier_stage_weight": Capability.STAGES,
        "multi_label": Capability.LABELS,
        "attention_supervision.weight": Capability.ATTENTION,
    }
    setting_trains: ClassVar[Mapping[Capability, str]] = {Capability.LABELS: "multi_label"}
    agreement: Tensor  # (V,) kappa of each word
    sampling_probability: Tensor  # () of scheduled sampling
    has_fixed_shapes = True

    def __init__(self, config: CrossEntropyConfig, *, feature_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.feeds_own_words = False  # scheduled sampling is on
        self.register_buffer("sampling_probability", torch.zeros(()), persistent=False)
        self.presence = nn.Linear(feature_size, vocabulary_size) if config.word_presence else None
        if self.presence is not None:
            nn.init.constant_(self.presence.bias, WORD_BIAS)
            self.register_buffer("agreement", torch.ones(vocabulary_size))

    def prepare(self, captions: Mapping[str, Sequence[Sequence[int]]], max_length: int) -> None:
        """Compute the agreement of an image's captions on each word."""
        super().prepare(captions, max_length)
        if self.config.word_presence:
            self.agreement.copy_(agreement(list(captions.values()), len(self.agreement)))

    @property
    def supervised_words(self) -> NamingWords | None:  # type: ignore[override]
        """Which mentions the attention loss needs."""
        supervision = self.config.attention_supervision
        return supervision.words if supervision.weight else None

    def begin_step(self, step: int, epoch: int) -> None:
        """Set the probability of scheduled sampling."""
        probability = self.config.scheduled_sampling.probability(epoch)
        self.feeds_own_words = probability > 0
        self.sampling_probability.fill_(probability)

    @property
    def variant(self) -> Hashable:  # type: ignore[override]
        """Scheduled sampling is another loop."""
        return self.feeds_own_words

    def forward(self, batch: Batch, features: Features, decoder: Decoder) -> Terms:
        """The loss of one batch, with its parts named."""
        if self.training and self.feeds_own_words:
            forced = scheduled(decoder, features, batch.inputs, self.sampling_probability)
        else:
            forced = teacher_forced(decoder, features, batch.inputs)
        total, parts = self._terms(batch, features, forced, decoder)
        return Terms(total, {name: value.detach() for name, value in parts.items()})

    def _terms(
        self, batch: Batch, features: Features, forced: TeacherForcedOutput, decoder: Decoder
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum of the terms and its parts, from a teacher-forced pass."""
        counts = counts_of(batch)
        is_word = batch.targets != Vocabulary.pad  # (B, N, T)
        words = self._likelihood(forced.logits, batch.targets) / counts.words
        total, parts = words, {"words": words}
        if decoder.stages > 1:
            weight = self.config.earlier_stage_weight
            with torch.set_grad_enabled(weight > 0 and torch.is_grad_enabled()):
                logits = [decoder.readout(forced.outputs, stage) for stage in range(decoder.stages - 1)]
                earlier = [self._likelihood(scores, batch.targets) / counts.words for scores in logits]
            total = torch.stack([*(weight * value for value in earlier), words]).sum()  # Gu et al. 2018, eq. 10: L
            parts |= {f"words_{stage}": value for stage, value in enumerate([*earlier, words])}
        if self.config.doubly_stochastic and forced.outputs.attention is not None:
            penalty = doubly_stochastic(forced.outputs.attention, is_word, features.is_region, batch.is_caption)
            penalty = penalty / counts.words  # as the likelihood, so that lambda weighs the two sums of a caption
            total = total + self.config.doubly_stochastic * penalty  # Xu et al. 2015, §4.2.1: L_d
            parts["doubly_stochastic"] = penalty
        supervision = self.config.attention_supervision
        if supervision.weight and batch.mentions is not None:  # validation has none
            *earlier, last = [
                attention_loss(stage.attention, batch.mentions) / counts.words
                for stage in forced.outputs.stages or (forced.outputs,)
                if stage.attention is not None
            ]
            looking = torch.stack([*(self.config.earlier_stage_weight * value for value in earlier), last]).sum()
            total = total + supervision.weight * looking  # as the likelihoods
            parts["attention_supervision"] = looking
        if self.presence is not None:
            scores = self.presence(features.vectors)
            presence = word_presence(scores, features.is_region, batch.targets, self.agreement.square())
            presence = presence / counts.images
            total = total + self.config.word_presence * presence
            parts["word_presence"] = presence
        if self.config.multi_label and Capability.LABELS in decoder.capabilities:
            labels = multi_label_margin(decoder.score_labels(forced.outputs), batch.targets) / counts.captions
            total = total + self.config.multi_label * labels
            parts["multi_label"] = labels
        return total, parts

    def _likelihood(self, logits: Tensor, targets: Tensor) -> Tensor:
        """- sum_t log p(y_t | y_<t, a), smoothed: (B, N, T, V) and (B, N, T) to ()."""
        logprobs = log_likelihood(logits, targets, self.config.label_smoothing)  # Anderson et al. 2018, eq. 8: p
        # Anderson et al. 2018, eq. 9: L_XE; Gu et al. 2018, eq. 9: L_i; Boustany and Sarfati, §2.1: L; HACap §4.4: L_d
        return -logprobs.masked_fill(targets == Vocabulary.pad, 0.0).sum()


def doubly_stochastic(attention: Tensor, is_word: Tensor, is_region: Tensor, is_caption: Tensor) -> Tensor:
    """sum_i (1 - sum_t alpha_ti)^2, summed over captions (Xu et al. 2015, §4.2.1): (B, N, T, R), without padding."""
    coverage = (attention * is_word.unsqueeze(-1)).sum(2)  # (B, N, R)
    # Xu et al. 2015, §4.2.1: penalty; HACap §3.5: penalty
    missing = ((1 - coverage) * is_region.unsqueeze(1)).square().sum(-1)  # (B, N)
    return (missing * is_caption).sum()


def multi_label_margin(scores: Tensor, targets: Tensor) -> Tensor:
    """1/V sum_{y in caption} sum_{w not in it} max(0, 1 - s_y + s_w), summed over captions; s is the maximum over time.

    The loss of El Baz 2020 as its code has it, after Yang et al. (2016): a word that occurs twice counts twice. There,
    end and padding are labels too, and the maximum includes the zeros after the end; not here. Scores: (B, N, T, V).
    """
    scores, targets = scores.flatten(0, 1).float(), targets.flatten(0, 1)  # (B N, T, V), (B N, T)
    highest = scores.masked_fill((targets == Vocabulary.pad).unsqueeze(-1), float("-inf")).amax(1)
    is_label = (targets != Vocabulary.pad) & (targets != Vocabulary.end)
    labels = torch.full_like(highest, -1, dtype=torch.long)  # torch reads each row up to its first -1
    steps = min(targets.shape[1], highest.shape[1])
    labels[:, :steps] = targets.masked_fill(~is_label, -1)[:, :steps]
    return F.multilabel_margin_loss(highest, labels, reduction="sum")  # El Baz 2020, §IV: margin


def agreement(captions: Sequence[Sequence[Sequence[int]]], vocabulary_size: int) -> Tensor:
    """Fleiss' kappa of each word, (V,), at least 0, with an image's captions as raters of "the word belongs to it".

    With a word in k of the n > 1 captions of an image: kappa = (observed - by chance) / (1 - by chance), where
    observed = mean (k(k - 1) + (n - k)(n - k - 1)) / (n(n - 1)),  by chance = p^2 + (1 - p)^2,  p = mean k/n
    """
    rated = [image for image in captions if len(image) > 1]
    if not rated:
        return torch.ones(vocabulary_size)
    # Observed agreement is summed over images, minus the value of a word in no caption.
    observed, share = (torch.zeros(vocabulary_size, dtype=torch.float64) for _ in range(2))
    for image in rated:
        words = torch.tensor([word for caption in image for word in set(caption)])
        ids, counts = torch.unique(words, return_counts=True)
        k, n = counts.double(), len(image)
        observed[ids] += (k * (k - 1) + (n - k) * (n - k - 1)) / (n * (n - 1)) - 1
        share[ids] += k / n
    observed = 1 + observed / len(rated)
    share = share / len(rated)
    by_chance = share.square() + (1 - share).square()
    kappa = (observed - by_chance) / (1 - by_chance)
    return kappa.nan_to_num(0.0).clamp(min=0).float()  # NaN for words in all captions or in none


def word_presence(scores: Tensor, is_region: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Binary cross-entropy of "this word occurs in a caption of the image", summed: scores (B, R, V), weights (V,)."""
    image_scores = scores.masked_fill(~is_region.unsqueeze(-1), float("-inf")).logsumexp(1)  # (B, V)
    present = torch.zeros_like(image_scores).scatter_(1, targets.flatten(1), 1.0)
    ordinary = slice(len(SPECIAL), None)
    loss = F.binary_cross_entropy_with_logits(image_scores[:, ordinary], present[:, ordinary], reduction="none")
    return (loss * weights[ordinary]).sum()
