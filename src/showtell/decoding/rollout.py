"""Walks over time that follow one path per row: along given words, or greedily."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from showtell.models.contract import Decoder, Output, spread
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, stack_over_time


@dataclass(frozen=True)
class Forced:
    """What a decoder says when it is fed given words."""

    logits: Tensor  # (B, N, T, V)
    outputs: Output  # its tensors (B, N, T, ...)


@dataclass(frozen=True)
class Captions:
    """K captions for each of B images, the likeliest first."""

    words: Tensor  # (B, K, T) int64: the words, end if it came, then pad
    is_word: Tensor  # (B, K, T) bool, True for words and for end
    word_logprobs: Tensor  # (B, K, T) natural logarithm; 0 where there is no word
    logprob: Tensor  # (B, K) their sum
    is_finished: Tensor  # (B, K) bool, True where end came before the limit
    attention: Tensor | None  # (B, K, T, R)


def teacher_forced(decoder: Decoder, features: Features, words: Tensor) -> Forced:
    """Feed given words and read out all steps in one matrix product.

    Args:
        decoder: any decoder.
        features: of B images.
        words: (B, N, T) int64, begin first.
    """
    state = spread(decoder.start(features), words.shape[1])
    outputs = []
    for last in words.unbind(-1):
        output, state = decoder.step(last, state)
        outputs.append(output)
    stacked = stack_over_time(outputs)
    return Forced(decoder.readout(stacked), stacked)


@torch.no_grad()
def greedy(decoder: Decoder, features: Features, max_length: int) -> Captions:
    """The likeliest word at each step, until `end` or `max_length` words; the lowest id wins a tie."""
    images = len(features.vectors)
    state = decoder.start(features)
    last = features.is_region.new_full((images, 1), Vocabulary.begin, dtype=torch.long)
    is_finished = features.is_region.new_zeros((images, 1), dtype=torch.bool)
    words, logprobs, is_word, attention = [], [], [], []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        logprob, choice = next_words(decoder.readout(output), is_finished, at_limit=step == max_length).max(-1)
        words.append(choice)
        logprobs.append(logprob)
        is_word.append(choice != Vocabulary.pad)
        attention.append(output.attention)
        is_finished = is_finished | (choice == Vocabulary.end)
        last = choice
        if bool(is_finished.all()):
            break
    return collect(words, logprobs, is_word, is_finished, attention)


def next_words(logits: Tensor, is_finished: Tensor, at_limit: bool) -> Tensor:
    """What may come next, with its log-probability; the rest is -inf.

    A finished row says `pad` at no cost, a living one never says `pad` or `begin` (nothing is renormalised). At the
    limit on the length a living row says `end` where that is its likeliest word; otherwise it is cut off there, which
    is `pad` at no cost too.

    Args:
        logits: (B, N, V).
        is_finished: (B, N) bool.
        at_limit: whether the row holds as many words as it may.

    Returns:
        (B, N, V) float32.
    """
    logprobs = logits.float().log_softmax(-1)
    logprobs[..., [Vocabulary.pad, Vocabulary.begin]] = float("-inf")
    stays = is_finished
    if at_limit:
        ends = logprobs.argmax(-1) == Vocabulary.end
        stays = stays | ~ends
        others = torch.arange(logprobs.shape[-1], device=logprobs.device) != Vocabulary.end
        logprobs = logprobs.masked_fill(others, float("-inf"))
    logprobs = logprobs.masked_fill(stays.unsqueeze(-1), float("-inf"))
    logprobs[..., Vocabulary.pad].masked_fill_(stays, 0.0)
    return logprobs


def collect(
    words: list[Tensor],
    logprobs: list[Tensor],
    is_word: list[Tensor],
    is_finished: Tensor,
    attention: list[Tensor | None],
) -> Captions:
    """Put the steps of a walk, each (B, K, ...), together."""
    scores = torch.stack(logprobs, -1)
    maps = [weights for weights in attention if weights is not None]
    return Captions(
        words=torch.stack(words, -1),
        is_word=torch.stack(is_word, -1),
        word_logprobs=scores,
        logprob=scores.sum(-1),
        is_finished=is_finished,
        attention=torch.stack(maps, dim=2) if maps else None,
    )
