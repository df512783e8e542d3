"""Scheduled sampling: teacher forcing in which some of the given words are replaced by the model's own.

Bengio et al., 2015: under teacher forcing a model never sees its own mistakes. Here each word after the first is
replaced, with some probability, by one that is sampled from the model at that position. The targets stay, and no
gradient flows through the choice.
"""

from __future__ import annotations

import torch
from torch import Tensor

from showtell import counter_rng
from showtell.decoding.rollout import TeacherForcedOutput
from showtell.decoding.rules import mask_words
from showtell.decoding.sampling import inverse_cdf
from showtell.models.contract import Decoder, Output, spread
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, stack_over_time

NEVER_FED = (Vocabulary.pad, Vocabulary.begin, Vocabulary.end)  # the caption continues here, so it has not ended


def scheduled(decoder: Decoder, features: Features, words: Tensor, probability: float | Tensor) -> TeacherForcedOutput:
    """Feed given words, some of them replaced by the model's own; read out step by step, because that is what chooses.

    Words are (B, N, T) int64, begin first; begin and padding are never replaced. At probability 0 this is
    `teacher_forced`, at more cost. Coins and draws come from `counter_rng`, so in a `counter_rng.use` block they are
    functions of (seed, step, image, row, position).
    """
    device = words.device
    is_replaced = (counter_rng.uniform(words.shape, device) < probability) & (words != Vocabulary.pad)  # (B, N, T)
    numbers = counter_rng.uniform(words.shape, device)
    outputs: list[Output] = []
    logits: list[Tensor] = []
    state = spread(decoder.start(features), words.shape[1])
    last = words[..., 0]
    for step in counter_rng.timesteps(range(words.shape[-1])):
        if step:
            scores = mask_words(logits[-1].detach().float(), NEVER_FED)
            own = inverse_cdf(scores.softmax(-1), numbers[..., step])
            last = torch.where(is_replaced[..., step], own, words[..., step])
        output, state = decoder.step(last, state)
        outputs.append(output)
        logits.append(decoder.readout(output))
    return TeacherForcedOutput(torch.stack(logits, 2), stack_over_time(outputs))
