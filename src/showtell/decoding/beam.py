"""Beam search over any decoder; no Python loop over images or beams.

At each step the beam of an image becomes the best extensions of its hypotheses. Those that end move from the beam to
the pool of finished ones, where no extension can displace them. An image is done when no live hypothesis is left, or
when none could still get into the pool: log-probabilities only fall, so the log-probability of a hypothesis over the
most favourable divisor bounds its score. Images that are done are dropped from the batch.

Ties: of equal hypotheses the one from the lower parent row comes first, then the lower id; in the pool the one that
ended first.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from showtell.cuda_graphs import Finish, Steps
from showtell.decoding.active_batch import ActiveBatch, take_images
from showtell.decoding.ranking import order_key, sort_keys, stable_topk
from showtell.decoding.rollout import Captions, collect, gather_by_backpointers, run_search
from showtell.decoding.rules import NO_RULES, LogitsProcessor
from showtell.decoding_config import Rules
from showtell.models.contract import Decoder, Output, gather_rows, take_rows
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

MINUS_INF = float("-inf")
TIER = 1 << 33  # above the range of `order_key`: captions of this tier beat those of none, whatever their scores
EMPTY = -(1 << 48)  # below every tier, and far enough from overflow


@dataclass(frozen=True)
class Hypotheses:
    """The words of rows; L is the maximum length and one more for end."""

    words: Tensor  # (b, N, L) int64
    logprobs: Tensor  # (b, N, L)
    path: Tensor  # (b, N, L) int64, the row of the beam that each word comes from


@dataclass(frozen=True)
class Live:
    """The live hypotheses of a beam."""

    hypotheses: Hypotheses
    total: Tensor  # (b, N) log-probability so far; -inf for an empty row


@dataclass(frozen=True)
class Pool:
    """The best n finished hypotheses, in falling order."""

    hypotheses: Hypotheses  # (b, n, L)
    score: Tensor  # (b, n)
    rank: Tensor  # (b, n) int64: first the tier, then the score; EMPTY for an empty row


@torch.no_grad()
def beam(
    decoder: Decoder,
    features: Features,
    max_length: int,
    num_beams: int,
    *,
    num_return: int | None = None,
    length_penalty: float = 0.0,
    rules: Rules = NO_RULES,
    keep_outputs: bool = False,
) -> Captions:
    """Beam search.

    With as many beams as there are captions this is exhaustive search; with one it is `greedy`. At the maximum length a
    hypothesis ends if `end` is its most likely word and is cut off otherwise.

    Args:
        decoder: any.
        features: of B images.
        max_length: at most this many words, `end` not counted.
        num_beams: K.
        num_return: captions per image, at most K; None is K. Fewer end the search earlier.
        length_penalty: exponent of the length, end included where it came, by which log-probabilities of finished
            captions are divided before they are ranked; one of length 0 counts as 1.
        rules: what captions may contain.
        keep_outputs: whether to fill `Captions.outputs`.
    """
    num_return = num_beams if num_return is None else num_return
    processor = LogitsProcessor(rules, max_length=max_length, device=features.vectors.device)

    def captions(features: Features) -> Steps[Captions]:
        return _search(decoder, features, num_beams, num_return, length_penalty, processor, keep_outputs)

    settings = "beam", max_length, num_beams, num_return, length_penalty, rules, keep_outputs
    return run_search(captions, features, decoder, settings)


def _search(
    decoder: Decoder, features: Features, num_beams: int, num_return: int, length_penalty: float,
    processor: LogitsProcessor, keep_outputs: bool,
) -> Steps[Captions]:  # fmt: skip
    """The search of `beam`, step by step."""
    images, device = len(features.vectors), features.vectors.device
    max_length = processor.max_length
    state = decoder.start(features)
    last = torch.full((images, 1), Vocabulary.begin, device=device)
    active_batch = ActiveBatch(images, device)
    live = Live(
        _empty_hypotheses(images, 1, max_length + 1, device),
        torch.zeros(images, 1, device=device),  # one row: before the first word all are equal
    )
    pool, whole = (_empty_pool(images, num_return, max_length + 1, device) for _ in range(2))
    outputs: list[tuple[Tensor, Output]] = []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        logprobs = decoder.readout(output).log_softmax(-1, dtype=torch.float32)
        processor.forbid(logprobs, live.hypotheses.words[..., :step])
        gains, words = _extensions(logprobs, num_beams, at_limit=step == max_length)
        if processor.can_forbid_all and step < max_length:
            is_stuck = gains.isneginf().all(-1)  # all next words are forbidden: a pad at no cost
            gains[..., 0].masked_fill_(is_stuck, 0.0)
            words[..., 0].masked_fill_(is_stuck, Vocabulary.pad)
        scores = live.total.unsqueeze(-1) + gains  # (b, N, m)
        rows, size = torch.arange(scores.shape[1], device=device).unsqueeze(-1), logprobs.shape[-1]
        ranks = sort_keys(scores, rows * size + words, len(rows) * size)  # of equals the lower row, then the lower id
        chosen = _top(ranks.flatten(1), num_beams)
        total = scores.flatten(1).gather(1, chosen)
        parents = chosen // scores.shape[-1]
        last = words.flatten(1).gather(1, chosen).masked_fill(total.isneginf(), Vocabulary.pad)
        hypotheses = map_tensors(live.hypotheses, lambda x, parents=parents: gather_rows(x, parents))
        hypotheses.words[..., step] = last
        hypotheses.logprobs[..., step] = gains.flatten(1).gather(1, chosen).masked_fill(last == Vocabulary.pad, 0.0)
        hypotheses.path[..., step] = parents
        stops = ((last == Vocabulary.end) | (last == Vocabulary.pad)) & ~total.isneginf()
        live = Live(hypotheses, total.masked_fill(stops, MINUS_INF))
        if keep_outputs:
            outputs.append((active_batch.images, output))
        if not active_batch.sync_is_free or bool(stops.any()):
            ended = last == Vocabulary.end
            divided = total / (step + 1) ** length_penalty, total / max(step, 1) ** length_penalty
            score = torch.where(ended, *divided).masked_fill(~stops, MINUS_INF)
            # Finished captions and those cut off at the limit, then those with all next words forbidden.
            tier = 1 if step == max_length else ended.long()
            rank = torch.where(stops, tier * TIER + order_key(score), EMPTY)
            pool = _merge(pool, Pool(hypotheses, score, rank), num_return)
        bound = live.total.amax(-1) / max((step + 1) ** length_penalty, (max_length + 1) ** length_penalty)
        is_done = bound.isneginf() | (pool.rank[..., -1] >= TIER + order_key(bound))
        keep = yield from active_batch.advance(whole, pool, is_done, step, last=step == max_length)
        if keep is not None:
            if not len(keep):
                break
            live, pool, last, state, parents = take_images((live, pool, last, state, parents), keep)
        state = take_rows(state, parents)
    yield Finish()
    best = whole.hypotheses
    along_path = gather_by_backpointers(outputs, best.path, images) if outputs else None
    return collect(best.words, best.logprobs, whole.score, along_path)


def _empty_hypotheses(images: int, rows: int, length: int, device: torch.device) -> Hypotheses:
    return Hypotheses(
        torch.full((images, rows, length), Vocabulary.pad, device=device),
        torch.zeros(images, rows, length, device=device),
        torch.zeros(images, rows, length, dtype=torch.long, device=device),
    )


def _empty_pool(images: int, rows: int, length: int, device: torch.device) -> Pool:
    return Pool(
        _empty_hypotheses(images, rows, length, device),
        torch.full((images, rows), MINUS_INF, device=device),
        torch.full((images, rows), EMPTY, device=device),
    )


def _extensions(logprobs: Tensor, num_beams: int, *, at_limit: bool) -> tuple[Tensor, Tensor]:
    """The best next words of each row, as many as a beam could take: log-probabilities and words, (b, N, m)."""
    if not at_limit:
        return stable_topk(logprobs, min(num_beams, logprobs.shape[-1]))
    gain, most_likely = stable_topk(logprobs, 1)
    ends = (most_likely == Vocabulary.end) & ~gain.isneginf()
    return gain.masked_fill(~ends, 0.0), torch.where(ends, Vocabulary.end, Vocabulary.pad)


def _top(ranks: Tensor, width: int) -> Tensor:
    """The indices of the highest ranks, the highest first: (..., n) to (..., width), or n where there are fewer."""
    return ranks.topk(min(width, ranks.shape[-1])).indices


def _merge(pool: Pool, new: Pool, size: int) -> Pool:
    """The best of the pool and of those that have just ended, (b, n, ...); of equals the older."""
    merged = map_tensors(pool, lambda old, new: torch.cat([old, new], 1), new)
    count = merged.rank.shape[1]
    age = torch.arange(count, device=merged.rank.device)
    indices = _top(merged.rank * count + (count - 1 - age), size)
    return map_tensors(merged, lambda x: gather_rows(x, indices))
