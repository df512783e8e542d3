"""The plain way to decode and to train, as the most used open toolkit does it: what the benchmarks measure against.

Written after the ideas of ImageCaptioning.pytorch (commit 2253580, captioning/models/CaptionModel.py and AttModel.py),
none of its code: features are copied for every beam and caption, attention makes a tensor of (rows, R, A) and takes its
tanh, the beam sorts all candidates, carries the log-probabilities of all words along, and looks for finished captions
in Python loops. The weights are those of our decoder, so that both say the same.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.models.attention import masked_mean
from showtell.models.sat import SatDecoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

PlainState = tuple[Tensor, Tensor]  # h and c, each (M, H)


class PlainSat:
    """Show, Attend and Tell, one flat batch of M rows."""

    def __init__(self, decoder: SatDecoder) -> None:
        self.decoder = decoder

    def start(self, features: Features, rows: int) -> tuple[tuple[Tensor, Tensor], PlainState]:
        """Features and projected features, copied to (B rows, R, ...), and the first state."""
        decoder = self.decoder
        vectors = decoder.feature_projection(features.vectors)
        mean = masked_mean(vectors, features.is_region)
        copied = [vectors, decoder.attention.project(vectors), decoder.init_hidden(mean), decoder.init_cell(mean)]
        vectors, projected, hidden, cell = (x.repeat_interleave(rows, 0) for x in copied)
        return (vectors, projected), (hidden, cell)

    def step(self, words: Tensor, seen: tuple[Tensor, Tensor], state: PlainState) -> tuple[Tensor, PlainState]:
        """Words (M,) to what the output layer reads, (M, E), and the next state."""
        decoder, (vectors, projected), (hidden, cell) = self.decoder, seen, state
        query = F.linear(hidden, decoder.attention.of_query.weight)
        summed = torch.tanh(projected + query.unsqueeze(1).expand_as(projected))  # (M, R, A)
        scores = F.linear(summed.reshape(-1, summed.shape[-1]), decoder.attention.score.weight)
        alpha = scores.view(len(words), -1).softmax(-1)
        context = torch.bmm(alpha.unsqueeze(1), vectors).squeeze(1)
        context = torch.sigmoid(decoder.beta(hidden)) * context
        word = decoder.embedding(words)
        hidden, cell = torch.lstm_cell(
            torch.cat([word, context], 1),
            (hidden, cell),
            decoder.lstm.weight_ih,
            decoder.lstm.weight_hh,
            decoder.lstm.bias_ih,
            decoder.lstm.bias_hh,
        )
        inner = (
            word
            + F.linear(decoder.dropout(hidden), decoder.hidden_to_output.weight, decoder.hidden_to_output.bias)
            + F.linear(context, decoder.context_to_output.weight, decoder.context_to_output.bias)
        )
        return decoder.dropout(torch.tanh(inner)), (hidden, cell)

    def logprobs(self, inner: Tensor) -> Tensor:
        """(M, E) to (M, V)."""
        return F.linear(inner, self.decoder.output.weight, self.decoder.output.bias).log_softmax(-1)


# model: its plain form
PLAIN = {"sat": PlainSat}


def _forced(logprobs: Tensor) -> Tensor:
    """No caption ends before its length."""
    logprobs[:, [Vocabulary.pad, Vocabulary.begin, Vocabulary.end]] = float("-inf")
    return logprobs


@torch.no_grad()
def greedy(plain: PlainSat, features: Features, length: int) -> Tensor:
    """Words (B, length)."""
    seen, state = plain.start(features, 1)
    words = torch.full((len(features.vectors),), Vocabulary.begin)
    said = []
    is_living = torch.ones(len(words), dtype=torch.bool)
    for _ in range(length):
        inner, state = plain.step(words, seen, state)
        _, words = _forced(plain.logprobs(inner)).max(1)
        is_living = is_living & (words != Vocabulary.end)
        said.append(words * is_living)
        if is_living.sum() == 0:
            break
    return torch.stack(said, 1)


@torch.no_grad()
def beam(plain: PlainSat, features: Features, length: int, beams: int) -> Tensor:
    """The best caption of each image, (B, length)."""
    images = len(features.vectors)
    seen, state = plain.start(features, beams)
    inner, state = plain.step(torch.full((images * beams,), Vocabulary.begin), seen, state)
    logprobs = _forced(plain.logprobs(inner))
    size = logprobs.shape[-1]
    totals = torch.zeros(images, beams)
    totals[:, 1:] = float("-inf")
    words = torch.zeros(images, beams, 0, dtype=torch.long)
    history = torch.zeros(images, beams, 0, size)
    done: list[list[tuple[float, Tensor]]] = [[] for _ in range(images)]
    for step in range(length):
        candidates = (totals.unsqueeze(-1) + logprobs.view(images, beams, size)).view(images, -1)
        totals, best = (x[:, :beams] for x in candidates.sort(-1, descending=True))
        parents, last = best // size, best % size
        words = torch.cat([words.gather(1, parents.unsqueeze(-1).expand_as(words)), last.unsqueeze(-1)], -1)
        history = history.gather(1, parents[..., None, None].expand_as(history))
        chosen = logprobs.view(images, beams, size).gather(1, parents.unsqueeze(-1).expand(-1, -1, size))
        history = torch.cat([history, chosen.unsqueeze(2)], 2)
        flat = (parents + beams * torch.arange(images).unsqueeze(1)).view(-1)
        state = (state[0][flat], state[1][flat])
        for image in range(images):
            is_end = words[image, :, step] == Vocabulary.end
            if step == length - 1:
                is_end.fill_(True)
            for row in range(beams):
                if is_end[row]:
                    done[image].append((totals[image, row].item(), words[image, row].clone()))
            totals[image, is_end] -= 1000
        inner, state = plain.step(last.view(-1), seen, state)
        logprobs = _forced(plain.logprobs(inner))
    return torch.stack([max(found, key=lambda one: one[0])[1] for found in done])


def teacher_forced(plain: PlainSat, features: Features, words: Tensor) -> Tensor:
    """Log-probabilities (B, N, T, V) of the words that follow `words`, (B, N, T): one readout per step."""
    images, rows, length = words.shape
    seen, state = plain.start(features, rows)
    logprobs = []
    for time in range(length):
        inner, state = plain.step(words[:, :, time].reshape(-1), seen, state)
        logprobs.append(plain.logprobs(inner))
    return torch.stack(logprobs, 1).view(images, rows, length, -1)
