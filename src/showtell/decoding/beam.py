"""Beam search over any decoder, batched: no Python loop over images or beams."""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.decoding.rollout import Captions, collect, next_words
from showtell.models.contract import Decoder, spread, take_rows
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


@torch.no_grad()
def beam(decoder: Decoder, features: Features, max_length: int, num_beams: int) -> Captions:
    """The `num_beams` likeliest captions that a beam of that width finds.

    At each step the beam holds the best `num_beams` of all hypotheses, finished ones included: a finished hypothesis
    keeps its score and its place until better ones push it out, and the search ends when all have finished. With as
    many beams as there are captions this is exhaustive search; with one it is `greedy`. Where there are fewer captions
    than beams, the rows that are left over have log-probability -inf.

    Args:
        decoder: any decoder.
        features: of B images.
        max_length: at most this many words, `end` not counted.
        num_beams: K; also how many captions come back.
    """
    images = len(features.vectors)
    state = spread(decoder.start(features), num_beams)
    last = features.is_region.new_full((images, num_beams), Vocabulary.begin, dtype=torch.long)
    total = features.vectors.new_full((images, num_beams), float("-inf"), dtype=torch.float32)
    total[:, 0] = 0.0  # all rows are alike before the first word: one of them speaks for all
    is_finished = features.is_region.new_zeros((images, num_beams), dtype=torch.bool)
    words: list[Tensor] = []
    gains: list[Tensor] = []
    is_word: list[Tensor] = []
    parents: list[Tensor] = []
    attention: list[Tensor | None] = []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        logprobs = next_words(decoder.readout(output), is_finished, at_limit=step == max_length)  # (B, K, V)
        total, best = (total.unsqueeze(-1) + logprobs).flatten(1).topk(num_beams)
        size = logprobs.shape[-1]
        nothing = total.isneginf()  # there are fewer hypotheses than beams
        parent, last = best // size, (best % size).masked_fill(nothing, Vocabulary.pad)
        words.append(last)
        gains.append(logprobs.flatten(1).gather(1, best).masked_fill(nothing, float("-inf")))
        is_word.append(last != Vocabulary.pad)
        parents.append(parent)
        attention.append(output.attention)
        is_finished = is_finished.gather(1, parent) | (last == Vocabulary.end)
        state = take_rows(state, parent)
        if bool(is_finished.all()):
            break

    # Walk back from the last step, to find the row that each survivor came from.
    row = torch.arange(num_beams, device=last.device).expand(images, -1)
    for step in reversed(range(len(words))):
        words[step] = words[step].gather(1, row)
        gains[step] = gains[step].gather(1, row)
        is_word[step] = is_word[step].gather(1, row)
        row = parents[step].gather(1, row)
        weights = attention[step]
        if weights is not None:  # the words of a step were said by their parents
            attention[step] = weights.gather(1, row.unsqueeze(-1).expand(-1, -1, weights.shape[-1]))
    return collect(words, gains, is_word, is_finished, attention)
