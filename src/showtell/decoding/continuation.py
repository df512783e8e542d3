"""Rollouts: every prefix of given captions, completed by the decoder several times.

This is the Monte-Carlo search of SeqGAN and LeakGAN, which HACap builds on. All prefixes of an image's captions are
rows of one walk from the states in which they were read. Rows that are finished in all images are dropped.
"""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.decoding.active_batch import MAX_ACTIVE
from showtell.decoding.sampling import inverse_cdf
from showtell.models.contract import Decoder, State, spread
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors, unstack


@torch.no_grad()
def continuations(decoder: Decoder, features: Features, words: Tensor, uniform: Tensor, *, max_length: int) -> Tensor:
    """Sample M completions of each prefix of captions: words (B, N, T) int64, without begin, to (B, N, M, T, L).

    Completion t begins with the first t + 1 words. A prefix that has ended is kept, one of the maximum length ends or
    is cut off; padding has no completions. L is max_length + 1, `uniform` are numbers in [0, 1), (B, N, M, T, L).
    """
    images, captions, times, steps, _ = uniform.shape
    whole = words.new_full((*uniform.shape[:-1], max_length + 1), Vocabulary.pad)
    for step in range(steps):
        whole[..., step, : step + 1] = words[:, :, None, : step + 1]
    is_over = (words == Vocabulary.pad) | (words == Vocabulary.end)  # (B, N, T)
    is_done, last = (x[:, :, None].expand(-1, -1, times, -1).flatten(1, 3) for x in (is_over, words))
    # Rows (N M T), and for each its column in `whole`: a row is dropped for all images at once.
    state = _after_each_word(decoder, features, words, times)
    flat = whole.flatten(1, 3)
    numbers = uniform.flatten(1, 3)
    position = torch.arange(1, steps + 1, device=words.device).expand(captions, times, -1).flatten()  # of the next word
    column = torch.arange(flat.shape[1], device=words.device)
    while True:
        is_done = is_done | (position > max_length)
        is_live = (~is_done).any(0)
        left = int(is_live.sum())
        if not left:
            return flat.view(*uniform.shape[:-1], max_length + 1)
        if left <= MAX_ACTIVE * len(column):
            keep = is_live.nonzero().squeeze(-1)
            column, position = column[keep], position[keep]
            is_done, last = is_done[:, keep], last[:, keep]
            state = State(state.image, map_tensors(state.rows, lambda x, keep=keep: x.index_select(1, keep)))
        output, state = decoder.step(last, state)
        probabilities = decoder.readout(output).float().softmax(-1)
        probabilities[..., [Vocabulary.pad, Vocabulary.begin]] = 0.0
        index = position.clamp(max=max_length).expand(images, -1).unsqueeze(-1)
        chosen = inverse_cdf(probabilities, numbers[:, column].gather(-1, index).squeeze(-1))
        stops = is_done | ((position == max_length) & (chosen != Vocabulary.end))
        last = chosen.masked_fill(stops, Vocabulary.pad)
        previous = flat[:, column].gather(-1, index).squeeze(-1)
        rows = torch.arange(images, device=words.device).unsqueeze(-1)
        flat[rows, column, index.squeeze(-1)] = torch.where(is_done, previous, last)
        is_done = stops | (last == Vocabulary.end)
        position = position + 1


def _after_each_word(decoder: Decoder, features: Features, words: Tensor, times: int) -> State:
    """The states in which each word of (B, N, T) is about to be read, `times` over: rows (B, N times T, ...)."""
    begin = torch.full_like(words[..., :1], Vocabulary.begin)
    state = spread(decoder.start(features), words.shape[1])
    rows = []
    for last in unstack(decoder.embed(torch.cat([begin, words[..., :-1]], -1).movedim(-1, 0))):
        _, state = decoder.step(last, state)
        rows.append(state.rows)
    every = map_tensors(rows[0], _stack_padded, *rows[1:])  # (B, N, T, ...)
    repeated = map_tensors(every, lambda x: x.unsqueeze(2).expand(-1, -1, times, *x.shape[2:]).flatten(1, 3))
    return State(state.image, repeated)


def _stack_padded(*steps: Tensor) -> Tensor:
    """The tensors of T steps, (B, N, ...), as (B, N, T, ...); those that grow with the words read are padded with 0."""
    shape = [max(sizes) for sizes in zip(*(step.shape for step in steps), strict=True)]
    stacked = steps[0].new_zeros(len(steps), *shape)
    for padded, step in zip(stacked, steps, strict=True):
        padded[tuple(slice(size) for size in step.shape)] = step
    return stacked.movedim(0, 2)
