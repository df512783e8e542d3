"""The plain way to decode and to train, as the most used open toolkit does it: what the benchmarks measure against.

Written after the ideas of ImageCaptioning.pytorch (commit 2253580, captioning/models/CaptionModel.py and AttModel.py),
none of its code: features are copied for every beam and caption, attention makes a tensor of (rows, R, A) and takes its
tanh, every step embeds its words, runs the cell on its whole input and reads out, and training writes what a step says
into one tensor of all steps; the beam sorts all candidates, carries the log-probabilities of all words along, and looks
for finished captions in Python loops. The weights are those of our decoder, so that both say the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from showtell.models.attention import AdditiveAttention, masked_mean
from showtell.models.nic import NicDecoder
from showtell.models.sat import SatDecoder
from showtell.models.updown import UpDownDecoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EncodedBatch = tuple[Tensor, ...]  # what a step needs of the images, each (M, ...)
PlainState = tuple[Tensor, ...]  # h and c of each cell, each (M, H)


class Plain(ABC):
    """A decoder over one flat batch of M rows, with the weights of one of ours."""

    decoder: Any

    @abstractmethod
    def start(self, features: Features, rows: int) -> tuple[EncodedBatch, PlainState]:
        """What steps need of the images, copied for each row, and the first state."""

    @abstractmethod
    def step(self, words: Tensor, encoded: EncodedBatch, state: PlainState) -> tuple[Tensor, PlainState]:
        """Words (M,) to what the output layer reads, (M, H), and the next state."""

    def logprobs(self, inner: Tensor) -> Tensor:
        """The output layer: (..., H) to (..., V)."""
        return linear(self.decoder.output, inner).log_softmax(-1)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer, by torch's own function."""
    return F.linear(x, layer.weight, layer.bias)


def cell(lstm: nn.Module, inputs: Tensor, state: PlainState) -> PlainState:
    """A step of torch's LSTM cell with the weights of ours."""
    weights: Any = (lstm.weight_ih, lstm.weight_hh, lstm.bias_ih, lstm.bias_hh)
    return torch.lstm_cell(inputs, state, *weights)


def attend(attention: AdditiveAttention, hidden: Tensor, projected: Tensor, vectors: Tensor) -> Tensor:
    """(M, H), (M, R, A) and (M, R, D) to (M, D)."""
    query = F.linear(hidden, attention.of_query.weight)
    summed = torch.tanh(projected + query.unsqueeze(1).expand_as(projected))  # (M, R, A)
    scores = F.linear(summed.reshape(-1, summed.shape[-1]), attention.score.weight)
    alpha = scores.view(len(hidden), -1).softmax(-1)
    return torch.bmm(alpha.unsqueeze(1), vectors).squeeze(1)


def copy(rows: int, *tensors: Tensor) -> EncodedBatch:
    """Each (B, ...) to (B rows, ...)."""
    return tuple(x.repeat_interleave(rows, 0) for x in tensors)


class PlainSat(Plain):
    """Show, Attend and Tell."""

    def __init__(self, decoder: SatDecoder) -> None:
        self.decoder = decoder

    def start(self, features: Features, rows: int) -> tuple[EncodedBatch, PlainState]:
        """Features and projected features; the state from their mean."""
        decoder = self.decoder
        vectors = decoder.feature_projection(features.vectors)
        mean = masked_mean(vectors, features.is_region)
        encoded = copy(rows, vectors, decoder.attention.project(vectors))
        return encoded, copy(rows, decoder.init_hidden(mean), decoder.init_cell(mean))

    def step(self, words: Tensor, encoded: EncodedBatch, state: PlainState) -> tuple[Tensor, PlainState]:
        """Attend, gate, run the cell, add up what the output layer reads."""
        decoder, (vectors, projected) = self.decoder, encoded
        context = attend(decoder.attention, state[0], projected, vectors)
        context = torch.sigmoid(decoder.beta(state[0])) * context
        word = decoder.embedding(words)
        state = cell(decoder.lstm, torch.cat([word, context], 1), state)
        of_hidden = linear(decoder.hidden_to_output, decoder.dropout(state[0]))
        inner = word + of_hidden + linear(decoder.context_to_output, context)
        return decoder.dropout(torch.tanh(inner)), state


class PlainUpDown(Plain):
    """Bottom-Up and Top-Down attention."""

    def __init__(self, decoder: UpDownDecoder) -> None:
        self.decoder = decoder

    def start(self, features: Features, rows: int) -> tuple[EncodedBatch, PlainState]:
        """Features, projected features and their mean; a state of zeros."""
        decoder = self.decoder
        vectors = decoder.feature_projection(features.vectors)
        mean = masked_mean(vectors, features.is_region)
        zeros = vectors.new_zeros(rows * len(vectors), decoder.config.hidden_size)
        return copy(rows, vectors, decoder.attention.project(vectors), mean), (zeros,) * 4

    def step(self, words: Tensor, encoded: EncodedBatch, state: PlainState) -> tuple[Tensor, PlainState]:
        """The attention LSTM, attention, the language LSTM."""
        decoder, (vectors, projected, mean) = self.decoder, encoded
        first = cell(decoder.attention_lstm, torch.cat([state[2], mean, decoder.embedding(words)], 1), state[:2])
        context = attend(decoder.attention, first[0], projected, vectors)
        second = cell(decoder.language_lstm, torch.cat([context, first[0]], 1), state[2:])
        return decoder.dropout(second[0]), (*first, *second)


class PlainNic(Plain):
    """One LSTM whose first input is the image."""

    def __init__(self, decoder: NicDecoder) -> None:
        self.decoder = decoder

    def start(self, features: Features, rows: int) -> tuple[EncodedBatch, PlainState]:
        """Nothing to look at; the state after the image."""
        decoder = self.decoder
        mean = masked_mean(features.vectors, features.is_region)
        (image,) = copy(rows, decoder.image_to_input(mean))
        zeros = image.new_zeros(len(image), decoder.config.hidden_size)
        return (), cell(decoder.cells[0], image, (zeros, zeros))

    def step(self, words: Tensor, encoded: EncodedBatch, state: PlainState) -> tuple[Tensor, PlainState]:
        """The LSTM."""
        state = cell(self.decoder.cells[0], self.decoder.embedding(words), state)
        return self.decoder.dropout(state[0]), state


# row of the benchmarks: its plain form
PLAIN: dict[str, Callable[[Any], Plain]] = {"nic_lstm": PlainNic, "sat_soft": PlainSat, "updown": PlainUpDown}


def _forced(logprobs: Tensor) -> Tensor:
    """No caption ends before its length."""
    logprobs[:, [Vocabulary.pad, Vocabulary.begin, Vocabulary.end]] = float("-inf")
    return logprobs


@torch.no_grad()
def greedy(plain: Plain, features: Features, length: int) -> Tensor:
    """Words (B, length)."""
    encoded, state = plain.start(features, 1)
    words = torch.full((len(features.vectors),), Vocabulary.begin, device=features.vectors.device)
    generated = []
    is_living = torch.ones_like(words, dtype=torch.bool)
    for _ in range(length):
        inner, state = plain.step(words, encoded, state)
        _, words = _forced(plain.logprobs(inner)).max(1)
        is_living = is_living & (words != Vocabulary.end)
        generated.append(words * is_living)
        if is_living.sum() == 0:
            break
    return torch.stack(generated, 1)


@torch.no_grad()
def beam(plain: Plain, features: Features, length: int, beams: int) -> Tensor:
    """The best caption of each image, (B, length)."""
    images, device = len(features.vectors), features.vectors.device
    encoded, state = plain.start(features, beams)
    inner, state = plain.step(torch.full((images * beams,), Vocabulary.begin, device=device), encoded, state)
    logprobs = _forced(plain.logprobs(inner))
    size = logprobs.shape[-1]
    totals = torch.zeros(images, beams, device=device)
    totals[:, 1:] = float("-inf")
    words = torch.zeros(images, beams, 0, dtype=torch.long, device=device)
    history = torch.zeros(images, beams, 0, size, device=device)
    done: list[list[tuple[float, Tensor]]] = [[] for _ in range(images)]
    for step in range(length):
        candidates = (totals.unsqueeze(-1) + logprobs.view(images, beams, size)).view(images, -1)
        totals, best = (x[:, :beams] for x in candidates.sort(-1, descending=True))
        parents, last = best // size, best % size
        words = torch.cat([words.gather(1, parents.unsqueeze(-1).expand_as(words)), last.unsqueeze(-1)], -1)
        history = history.gather(1, parents[..., None, None].expand_as(history))
        chosen = logprobs.view(images, beams, size).gather(1, parents.unsqueeze(-1).expand(-1, -1, size))
        history = torch.cat([history, chosen.unsqueeze(2)], 2)
        flat = (parents + beams * torch.arange(images, device=device).unsqueeze(1)).view(-1)
        state = tuple(x[flat] for x in state)
        for image in range(images):
            is_end = words[image, :, step] == Vocabulary.end
            if step == length - 1:
                is_end.fill_(True)
            for row in range(beams):
                if is_end[row]:
                    done[image].append((totals[image, row].item(), words[image, row].clone()))
            totals[image, is_end] -= 1000
        inner, state = plain.step(last.view(-1), encoded, state)
        logprobs = _forced(plain.logprobs(inner))
    return torch.stack([max(finished, key=lambda one: one[0])[1] for finished in done])


def teacher_forced(plain: Plain, features: Features, words: Tensor) -> Tensor:
    """Log-probabilities (B, N, T, V) of the words that follow `words`, (B, N, T): one readout per step."""
    images, rows, length = words.shape
    encoded, state = plain.start(features, rows)
    logprobs: Tensor | None = None
    for time in range(length):
        inner, state = plain.step(words[:, :, time].reshape(-1), encoded, state)
        step_logprobs = plain.logprobs(inner)
        if logprobs is None:
            logprobs = step_logprobs.new_zeros(len(step_logprobs), length, step_logprobs.shape[-1])
        logprobs[:, time] = step_logprobs
    assert logprobs is not None
    return logprobs.view(images, rows, length, -1)


def sample(plain: Plain, features: Features, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Drawn words (B, N, length), and the log-probabilities of all words at all steps, with gradients."""
    encoded, state = plain.start(features, rows)
    words = torch.full((rows * len(features.vectors),), Vocabulary.begin, device=features.vectors.device)
    sampled = words.new_zeros(len(words), length)
    every: Tensor | None = None
    is_living = torch.ones_like(words, dtype=torch.bool)
    for time in range(length):
        inner, state = plain.step(words, encoded, state)
        logprobs = plain.logprobs(inner)
        if every is None:
            every = logprobs.new_zeros(len(words), length, logprobs.shape[-1])
        words = torch.distributions.Categorical(logits=logprobs.detach()).sample()
        words = words * is_living
        is_living = is_living & (words != Vocabulary.end)
        sampled[:, time] = words
        every[:, time] = logprobs
        if is_living.sum() == 0:
            break
    assert every is not None
    return sampled.view(-1, rows, length), every.view(-1, rows, length, every.shape[-1])


Rewarded = Callable[[list[list[int]], list[int]], list[float]]  # captions, and which image each is of


def self_critical(plain: Plain, features: Features, rows: int, length: int, reward: Rewarded) -> Tensor:
    """The loss of a self-critical step: samples with gradients, then the greedy captions, then a reward in Python."""
    plain.decoder.eval()
    best = greedy(plain, features, length)
    plain.decoder.train()
    words, logprobs = sample(plain, features, rows, length)
    images = len(words)
    captions = [[word for word in own if word] for own in [*words.flatten(0, 1).tolist(), *best.tolist()]]
    scores = reward(captions, [*(image for image in range(images) for _ in range(rows)), *range(images)])
    advantage = torch.tensor(
        [
            [scores[image * rows + row] - scores[images * rows + image] for row in range(rows)]
            for image in range(images)
        ],
        device=words.device,
    )
    is_word = words > 0
    chosen = logprobs.gather(3, words.unsqueeze(3)).squeeze(3)
    return -(chosen * advantage.unsqueeze(2) * is_word).sum() / is_word.sum()
