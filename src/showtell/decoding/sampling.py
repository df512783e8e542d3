"""Walks in which each row goes its own way: the likeliest word each time, or one drawn by its probability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from showtell import counter_rng
from showtell.counter_rng import CounterRNG
from showtell.decoding.active_batch import ActiveBatch, take_images
from showtell.decoding.ranking import best
from showtell.decoding.rollout import Captions, collect, gather_by_backpointers
from showtell.decoding.rules import LogitsProcessor, Rules
from showtell.models.contract import Decoder, Output, spread
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

# logprobs (b, N, V), the images at work (b,) and the step to the next words (b, N)
Chooser = Callable[[Tensor, Tensor, int], Tensor]
NO_RULES = Rules()
HEAD = 64  # words that are looked at before a whole vocabulary is sorted for a nucleus


@dataclass(frozen=True)
class Walked:
    """What the rows have said."""

    words: Tensor  # (b, N, L) int64
    logprobs: Tensor  # (b, N, L)
    is_done: Tensor  # (b, N) bool, finished or cut off


@torch.no_grad()
def greedy(
    decoder: Decoder, features: Features, max_length: int, *, rules: Rules = NO_RULES, keep_outputs: bool = False
) -> Captions:
    """The likeliest word at each step, until `end` or `max_length` words; the lowest id wins a tie."""

    def likeliest(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
        return best(logprobs, 1)[1].squeeze(-1)

    return _captions(*walk(decoder, features, max_length, 1, likeliest, rules, keep_outputs))


@torch.no_grad()
def sample(
    decoder: Decoder,
    features: Features,
    max_length: int,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    image_ids: Sequence[str] | None = None,
    rules: Rules = NO_RULES,
    keep_outputs: bool = False,
) -> Captions:
    """Captions drawn word by word, in the order in which they were drawn; equal ones may come.

    A draw is a function of (seed, image id, number of the sample, step): the rest of the batch does not matter.

    Args:
        decoder: any decoder.
        features: of B images.
        max_length: at most this many words, `end` not counted.
        samples: N, captions per image.
        temperature: logits are divided by it; the log-probabilities that come back are those at 1.
        top_k: only the k likeliest words are drawn; None is all.
        top_p: only the fewest likeliest words whose probabilities, after temperature and top_k, sum to at least this.
        seed: another one draws other captions.
        image_ids: B names; None counts the images.
        rules: what may be said.
        keep_outputs: whether `Captions.outputs` is wanted.
    """
    names = [str(number) for number in range(len(features.vectors))] if image_ids is None else image_ids
    uniform = CounterRNG(seed, 0, names).uniform((len(names), samples, max_length + 1), features.vectors.device)

    def draw(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
        scores = logprobs if temperature == 1 else logprobs / temperature
        numbers = uniform[images, :, step]
        if top_k is not None and top_k < scores.shape[-1]:
            scores, words = best(scores, top_k)
            nucleus = _nucleus(scores.softmax(-1), top_p)
        elif top_p < 1:
            probabilities = scores.softmax(-1)
            likeliest, words = best(probabilities, min(HEAD, scores.shape[-1]))
            # A GPU sorts fast and would have to be waited for; a CPU is asked whether a few words hold enough.
            if probabilities.device.type != "cpu" or bool((likeliest.sum(-1) < top_p).any()):
                likeliest, words = probabilities.sort(dim=-1, descending=True, stable=True)
            nucleus = _nucleus(likeliest, top_p)
        else:
            return inverse(scores.softmax(-1), numbers)
        return words.gather(-1, inverse(nucleus, numbers).unsqueeze(-1)).squeeze(-1)

    return _captions(*walk(decoder, features, max_length, samples, draw, rules, keep_outputs))


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities in falling order with those set to 0 before which `top_p` is reached."""
    if top_p >= 1:
        return probabilities
    before = probabilities.cumsum(-1) - probabilities
    return probabilities.masked_fill(before >= top_p, 0.0)


def inverse(weights: Tensor, numbers: Tensor) -> Tensor:
    """The places that numbers in [0, 1) fall on: weights (..., n) need not sum to one; numbers (...)."""
    total = weights.cumsum(-1)
    at = numbers.unsqueeze(-1) * total[..., -1:]
    return torch.searchsorted(total, at, right=True).squeeze(-1).clamp_max(weights.shape[-1] - 1)


def walk(
    decoder: Decoder,
    features: Features,
    max_length: int,
    rows: int,
    choose: Chooser,
    rules: Rules = NO_RULES,
    keep_outputs: bool = False,
) -> tuple[Walked, list[tuple[Tensor, Output]]]:
    """N rows per image, each with the words that `choose` takes. A row with `max_length` words, or with nothing that
    it may say, is cut off there unless `end` is chosen.

    Images that are done leave the batch; where gradients are asked for they stay until all are done, because what the
    steps share is then one and the same tensor for all of them. The choice of words has no gradient.

    Returns:
        What was said, and, if outputs are kept, for each step the images at work, (b,), and their output, (b, N, ...).
    """
    images, device = len(features.vectors), features.vectors.device
    state = spread(decoder.start(features), rows)
    last = torch.full((images, rows), Vocabulary.begin, device=device)
    walked = Walked(
        torch.full((images, rows, max_length + 1), Vocabulary.pad, device=device),
        torch.zeros(images, rows, max_length + 1, device=device),
        torch.zeros(images, rows, dtype=torch.bool, device=device),
    )
    whole = Walked(walked.words.clone(), walked.logprobs.clone(), walked.is_done.clone())
    active_batch = ActiveBatch(images, device, together=torch.is_grad_enabled())
    referee = LogitsProcessor(rules, max_length=max_length, device=device)
    outputs: list[tuple[Tensor, Output]] = []
    for step in counter_rng.timesteps(range(max_length + 1)):  # one more for end
        with counter_rng.subset(active_batch.images):
            output, state = decoder.step(last, state)
        with torch.no_grad():
            logprobs = decoder.readout(output).log_softmax(-1, dtype=torch.float32)
            referee.forbid(logprobs, walked.words[..., :step])
            chosen = choose(logprobs, active_batch.images, step)
            logprob = logprobs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        stops = walked.is_done | logprob.isneginf()
        if step == max_length:
            stops = stops | (chosen != Vocabulary.end)
        last = chosen.masked_fill(stops, Vocabulary.pad)
        walked.words[..., step] = last
        walked.logprobs[..., step] = logprob.masked_fill(stops, 0.0)
        walked = Walked(walked.words, walked.logprobs, stops | (last == Vocabulary.end))
        if keep_outputs:
            outputs.append((active_batch.images, output))
        staying = active_batch.leave(walked.is_done.all(-1), step, last=step == max_length)
        if staying is not None:
            active_batch.store(whole, walked)
            if not len(staying):
                break
            active_batch.images, state, last, walked = take_images((active_batch.images, state, last, walked), staying)
    return whole, outputs


def _captions(walked: Walked, outputs: list[tuple[Tensor, Output]]) -> Captions:
    """What was said, with the outputs that were kept."""
    images, rows, length = walked.words.shape
    own = torch.arange(rows, device=walked.words.device).view(1, rows, 1).expand(images, rows, length)
    return collect(
        walked.words, walked.logprobs, outputs=gather_by_backpointers(outputs, own, images) if outputs else None
    )
