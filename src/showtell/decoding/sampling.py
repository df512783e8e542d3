"""Greedy search and sampling: walks over time in which each row chooses its own next word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from showtell.counter_rng import CounterRNG
from showtell.cuda_graphs import Finish, Steps, is_static
from showtell.decoding.active_batch import ActiveBatch, take_images
from showtell.decoding.ranking import stable_topk
from showtell.decoding.rollout import Captions, collect, outputs_in_place, run_search
from showtell.decoding.rules import NO_RULES, LogitsProcessor
from showtell.decoding_config import Rules
from showtell.models.contract import Decoder, Output, spread
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

# log-probabilities (b, N, V), indices of the active images (b,) and the step, to the next words (b, N)
Chooser = Callable[[Tensor, Tensor, int], Tensor]
HEAD = 64  # most likely words that are tried before a whole vocabulary is sorted for a nucleus


@dataclass(frozen=True)
class Sequences:
    """The words of each row so far."""

    words: Tensor  # (b, N, L) int64
    logprobs: Tensor  # (b, N, L)
    is_done: Tensor  # (b, N) bool, finished or cut off


@torch.no_grad()
def greedy(
    decoder: Decoder, features: Features, max_length: int, *, rules: Rules = NO_RULES, keep_outputs: bool = False
) -> Captions:
    """The most likely word at each step, until `end` or `max_length` words; the lowest id wins a tie."""

    def most_likely(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
        return stable_topk(logprobs, 1)[1].squeeze(-1)

    processor = LogitsProcessor(rules, max_length=max_length, device=features.vectors.device)

    def captions(features: Features) -> Steps[Captions]:
        return _captions(*(yield from walk(decoder, features, 1, most_likely, processor, keep_outputs)))

    return run_search(captions, features, decoder, ("greedy", max_length, rules, keep_outputs))


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
    """N captions per image sampled word by word, in the order of sampling, with repeats.

    A draw is a function of (seed, image id, number of the sample, step): the rest of the batch does not matter. By
    default the images are counted.

    Args:
        decoder: any.
        features: of B images.
        max_length: at most this many words, `end` not counted.
        samples: N.
        temperature: logits are divided by it; the log-probabilities that come back are those at 1.
        top_k: sample from the k most likely words.
        top_p: sample from the fewest most likely words whose probabilities, after temperature and top_k, sum to this.
        seed: random seed.
        image_ids: B names.
        rules: what captions may contain.
        keep_outputs: whether to fill `Captions.outputs`.
    """
    names = [str(number) for number in range(len(features.vectors))] if image_ids is None else image_ids
    keys, device = CounterRNG(seed, 0, names).keys, features.vectors.device
    processor = LogitsProcessor(rules, max_length=max_length, device=device)

    def captions(inputs: tuple[Features, tuple[Tensor, Tensor]]) -> Steps[Captions]:
        features, keys = inputs
        uniform = CounterRNG.of_keys(keys).uniform((len(keys[0]), samples, max_length + 1), device)

        def draw(logprobs: Tensor, images: Tensor, step: int) -> Tensor:
            scores = logprobs if temperature == 1 else logprobs / temperature
            numbers = uniform[images, :, step]
            if top_k is not None and top_k < scores.shape[-1]:
                scores, words = stable_topk(scores, top_k)
                nucleus = _nucleus(scores.softmax(-1), top_p)
            elif top_p < 1:
                probabilities = scores.softmax(-1)
                top, words = stable_topk(probabilities, min(HEAD, scores.shape[-1]))
                # A GPU sorts fast, and to ask it would wait for it; on a CPU a few words are often enough.
                if is_static() or device.type != "cpu" or bool((top.sum(-1) < top_p).any()):
                    top, words = probabilities.sort(dim=-1, descending=True, stable=True)
                nucleus = _nucleus(top, top_p)
            else:
                return inverse_cdf(scores.softmax(-1), numbers)
            return words.gather(-1, inverse_cdf(nucleus, numbers).unsqueeze(-1)).squeeze(-1)

        return _captions(*(yield from walk(decoder, features, samples, draw, processor, keep_outputs)))

    settings = "sample", max_length, samples, temperature, top_k, top_p, rules, keep_outputs
    return run_search(captions, (features, keys), decoder, settings)


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Probabilities in falling order with those set to 0 before which `top_p` is reached."""
    if top_p >= 1:
        return probabilities
    return probabilities.masked_fill(probabilities.cumsum(-1) - probabilities >= top_p, 0.0)


def inverse_cdf(weights: Tensor, numbers: Tensor) -> Tensor:
    """Inverse transform sampling: the indices that numbers (...) in [0, 1) select by weights (..., n) of any sum."""
    total = weights.cumsum(-1)
    at = numbers.unsqueeze(-1) * total[..., -1:]
    return torch.searchsorted(total, at, right=True).squeeze(-1).clamp_max(weights.shape[-1] - 1)


def walk(
    decoder: Decoder, features: Features, rows: int, choose: Chooser, processor: LogitsProcessor,
    keep_outputs: bool = False,
) -> Steps[tuple[Sequences, list[tuple[Tensor, Output]]]]:  # fmt: skip
    """Generate N rows per image from the words that `choose` takes, without gradient, under the rules of the processor.

    A row of the maximum length, or whose next words are all forbidden, is cut off unless `end` is chosen. Where outputs
    are kept, each step has the indices of the active images, (b,), and their output, (b, N, ...).
    """
    images, device, max_length = len(features.vectors), features.vectors.device, processor.max_length
    state = spread(decoder.start(features), rows)
    last = torch.full((images, rows), Vocabulary.begin, device=device)
    active = Sequences(
        torch.full((images, rows, max_length + 1), Vocabulary.pad, device=device),
        torch.zeros(images, rows, max_length + 1, device=device),
        torch.zeros(images, rows, dtype=torch.bool, device=device),
    )
    sequences = map_tensors(active, torch.clone)
    active_batch = ActiveBatch(images, device)
    outputs: list[tuple[Tensor, Output]] = []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        with torch.no_grad():
            logprobs = decoder.readout(output).log_softmax(-1, dtype=torch.float32)
            processor.forbid(logprobs, active.words[..., :step])
            chosen = choose(logprobs, active_batch.images, step)
            logprob = logprobs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        stops = active.is_done | logprob.isneginf()
        if step == max_length:
            stops = stops | (chosen != Vocabulary.end)
        last = chosen.masked_fill(stops, Vocabulary.pad)
        active.words[..., step] = last
        active.logprobs[..., step] = logprob.masked_fill(stops, 0.0)
        active = Sequences(active.words, active.logprobs, stops | (last == Vocabulary.end))
        if keep_outputs:
            outputs.append((active_batch.images, output))
        keep = yield from active_batch.advance(sequences, active, active.is_done.all(-1), step, last=step == max_length)
        if keep is not None:
            if not len(keep):
                break
            state, last, active = take_images((state, last, active), keep)
    yield Finish()
    return sequences, outputs


def _captions(sequences: Sequences, outputs: list[tuple[Tensor, Output]]) -> Captions:
    """The captions of a walk, with the outputs that were kept."""
    kept = outputs_in_place(outputs, sequences.words) if outputs else None
    return collect(sequences.words, sequences.logprobs, outputs=kept)
