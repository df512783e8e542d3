"""Beam search over any decoder: plain, in diverse groups, or with required words; no Python loop over images or beams.

At each step the beam of an image becomes the best extensions of its hypotheses. Those that end move from the beam to
the pool of finished ones, where no extension can displace them. An image is done when no live hypothesis is left, or
when none could still get into the pool: log-probabilities only fall, so the log-probability of a hypothesis over the
most favourable divisor of the length penalty bounds its score. Images that are done are dropped from the batch.

Diverse groups (Vijayakumar et al., "Diverse beam search", 2016, algorithm 1 with Hamming diversity): the groups of an
image choose one after the other, and a word costs `diversity` for each earlier group that has chosen it in this step.
The penalty affects the choice only; the scores and log-probabilities that are returned are without it.

Required words: one beam of `num_beams` for each number of required words that are met (`constraints.py`). A hypothesis
may end only when all are. If none ends, those cut off with most of them are returned, unfinished.

Ties: of equal hypotheses the one from the lower parent row comes first, then the lower id; in the pool the one that
ended first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from showtell.cuda_graphs import Finish, Steps, Until
from showtell.decoding.active_batch import ActiveBatch, take_images
from showtell.decoding.constraints import Constraints
from showtell.decoding.ranking import LengthPenalty, order_key, sort_keys, stable_topk
from showtell.decoding.rollout import Captions, collect, gather_by_backpointers, is_repeat, run_search
from showtell.decoding.rules import NO_RULES, LogitsProcessor, Rules
from showtell.models.contract import Decoder, Output, gather_rows, take_rows
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

NO_PENALTY = LengthPenalty()
MINUS_INF = float("-inf")
TIER = 1 << 33  # above the range of `order_key`: a better tier beats any score
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
    states: Tensor  # (b, N, P) of the required phrases


@dataclass(frozen=True)
class Pool:
    """The finished hypotheses, G groups of the best n each, in falling order."""

    hypotheses: Hypotheses  # (b, G * n, L)
    score: Tensor  # (b, G * n)
    rank: Tensor  # (b, G * n) int64: first the tier, then the score; EMPTY for an empty row


@torch.no_grad()
def beam(
    decoder: Decoder,
    features: Features,
    max_length: int,
    num_beams: int,
    *,
    num_return: int | None = None,
    groups: int = 1,
    diversity: float = 0.0,
    length_penalty: LengthPenalty = NO_PENALTY,
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
        num_beams: K, over all groups; with required words, for each number of them that are met.
        num_return: captions per image, at most K; None is K. Fewer end the search earlier.
        groups: G, a divisor of K. Each contributes its best captions in turn, without duplicates.
        diversity: log-probability that a word costs for each earlier group that has chosen it in this step.
        length_penalty: how finished captions of different lengths are compared.
        rules: what captions may and must contain; required words need one group.
        keep_outputs: whether to fill `Captions.outputs`.
    """
    num_return = num_beams if num_return is None else num_return
    processor = LogitsProcessor(rules, max_length=max_length, device=features.vectors.device)
    constraints = Constraints(rules.required, features.vectors.device)

    def captions(features: Features) -> Steps[Captions]:
        return _search(
            decoder, features, num_beams, num_return, groups, diversity, length_penalty, processor, constraints,
            keep_outputs,
        )  # fmt: skip

    settings = "beam", max_length, num_beams, num_return, groups, diversity, length_penalty, rules, keep_outputs
    return run_search(captions, features, decoder, settings)


def _search(
    decoder: Decoder,
    features: Features,
    num_beams: int,
    num_return: int,
    groups: int,
    diversity: float,
    length_penalty: LengthPenalty,
    processor: LogitsProcessor,
    constraints: Constraints,
    keep_outputs: bool,
) -> Steps[Captions]:
    """The search of `beam`, step by step."""
    images, device = len(features.vectors), features.vectors.device
    rules, max_length = processor.rules, processor.max_length
    width = num_beams // groups
    pool_size = num_return if groups == 1 else width  # per group
    state = decoder.start(features)
    last = torch.full((images, 1), Vocabulary.begin, device=device)
    active_batch = ActiveBatch(images, device)
    live = Live(
        _empty_hypotheses(images, 1, max_length + 1, device),
        torch.zeros(images, 1, device=device),  # one row: before the first word all are equal
        constraints.start(images),
    )
    pool, whole = (_empty_pool(images, groups * pool_size, max_length + 1, device) for _ in range(2))
    outputs: list[tuple[Tensor, Output]] = []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        logprobs = decoder.readout(output).log_softmax(-1, dtype=torch.float32)
        size = logprobs.shape[-1]
        processor.forbid(logprobs, live.hypotheses.words[..., :step])
        if rules.required:
            logprobs[..., Vocabulary.end].masked_fill_(~constraints.is_met(live.states), MINUS_INF)
        gains, words = _extensions(logprobs, live, constraints, num_beams, at_limit=step == max_length)
        if processor.can_forbid_all and step < max_length:
            _cut_off_stuck_rows(gains, words)
        scores = live.total.unsqueeze(-1) + gains  # (b, N, m)
        if rules.required:
            states = constraints.advance(live.states, words)  # (b, N, m, P)
            chosen, total = _select_by_bank(scores, words, states.sum(-1), constraints.words + 1, num_beams, size)
            states = gather_rows(states.flatten(1, 2), chosen)
        else:
            chosen, total = _select_by_group(scores, words, groups, width, diversity, size)
            states = live.states
        parents = chosen // scores.shape[-1]
        last = words.flatten(1).gather(1, chosen).masked_fill(total.isneginf(), Vocabulary.pad)
        hypotheses = map_tensors(live.hypotheses, lambda x, parents=parents: gather_rows(x, parents))
        hypotheses.words[..., step] = last
        hypotheses.logprobs[..., step] = gains.flatten(1).gather(1, chosen).masked_fill(last == Vocabulary.pad, 0.0)
        hypotheses.path[..., step] = parents
        stops = ((last == Vocabulary.end) | (last == Vocabulary.pad)) & ~total.isneginf()
        live = Live(hypotheses, total.masked_fill(stops, MINUS_INF), states)
        if keep_outputs:
            outputs.append((active_batch.images, output))
        if not active_batch.sync_is_free or bool(stops.any()):
            ended = last == Vocabulary.end
            divided = total / length_penalty.divisor(step + 1), total / length_penalty.divisor(step)
            score = torch.where(ended, *divided).masked_fill(~stops, MINUS_INF)
            # Finished captions, then those cut off with most required words, then those with all next words forbidden.
            tier = 1 + live.states.sum(-1) if step == max_length else torch.where(ended, 1 + constraints.words, 0)
            rank = torch.where(stops, tier * TIER + order_key(score), EMPTY)
            pool = _merge(pool, Pool(hypotheses, score, rank), groups, pool_size)
        bound = torch.unflatten(live.total, 1, (groups, -1)).amax(-1) / max(
            length_penalty.divisor(step + 1), length_penalty.divisor(max_length + 1)
        )
        worst = torch.unflatten(pool.rank, 1, (groups, pool_size))[..., -1]
        is_done = (bound.isneginf() | (worst >= (1 + constraints.words) * TIER + order_key(bound))).all(-1)
        remaining = active_batch.remaining(is_done, step, last=step == max_length)
        if remaining is not None or active_batch.may_end(step):
            active_batch.store(whole, pool)
        if active_batch.may_end(step):
            yield Until(is_done.all())
        if remaining is not None:
            if not len(remaining):
                break
            active_batch.images, live, pool, last = take_images((active_batch.images, live, pool, last), remaining)
            state, parents = take_images((state, parents), remaining)
        state = take_rows(state, parents)
    yield Finish()
    best = _deduplicate(whole, groups, pool_size, num_return)
    along_path = gather_by_backpointers(outputs, best.hypotheses.path, images) if outputs else None
    return collect(best.hypotheses.words, best.hypotheses.logprobs, best.score, along_path)


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


def _extensions(
    logprobs: Tensor, live: Live, constraints: Constraints, num_beams: int, *, at_limit: bool
) -> tuple[Tensor, Tensor]:
    """The candidates for the next word of each row: log-probabilities and words, (b, N, m).

    The `num_beams` best words of each row are enough: a beam takes no more from one row, and a diverse group would take
    a word beyond these only if all of them were penalised, which at most those of the earlier groups are.
    """
    if at_limit:
        gain, most_likely = stable_topk(logprobs, 1)
        ends = (most_likely == Vocabulary.end) & ~gain.isneginf()
        return gain.masked_fill(~ends, 0.0), torch.where(ends, Vocabulary.end, Vocabulary.pad)
    gains, words = stable_topk(logprobs, min(num_beams, logprobs.shape[-1]))
    if constraints.words:
        required = constraints.next_words(live.states)  # (b, N, P)
        known = torch.cat([words, required], -1).unsqueeze(-2) == required.unsqueeze(-1)  # (b, N, P, m + P)
        is_new = known.long().argmax(-1) == words.shape[-1] + torch.arange(required.shape[-1], device=required.device)
        gains = torch.cat([gains, logprobs.gather(-1, required).masked_fill(~is_new, MINUS_INF)], -1)
        words = torch.cat([words, required], -1)
    return gains, words


def _cut_off_stuck_rows(gains: Tensor, words: Tensor) -> None:
    """Give rows whose next words are all forbidden a pad at no cost, in place."""
    is_stuck = gains.isneginf().all(-1)
    gains[..., 0].masked_fill_(is_stuck, 0.0)
    words[..., 0].masked_fill_(is_stuck, Vocabulary.pad)


def _ranks(scores: Tensor, words: Tensor, size: int) -> Tensor:
    """Integers in the order of extensions (b, N, m): by score, then the lower row, then the lower id."""
    rows = scores.shape[1]
    return sort_keys(scores, torch.arange(rows, device=words.device).unsqueeze(-1) * size + words, rows * size)


def _select_by_group(
    scores: Tensor, words: Tensor, groups: int, width: int, diversity: float, size: int
) -> tuple[Tensor, Tensor]:
    """The extensions that the groups choose from (b, N, m), one group after the other: indices and scores, (b, K)."""
    rows = scores.shape[1]
    candidates = words.masked_fill(scores.isneginf(), -1).flatten(1)  # an empty row has none
    chosen: list[Tensor] = []
    for group in range(groups):
        # Before the first word the only row is that of all groups.
        start, stop = (0, 1) if rows == 1 else (group * rows // groups, (group + 1) * rows // groups)
        own, following = scores[:, start:stop], words[:, start:stop]
        if chosen:
            before = candidates.gather(1, torch.cat(chosen, 1))[:, None, None]
            own = own - diversity * (following.unsqueeze(-1) == before).sum(-1)
        rank = _ranks(own, following, size).flatten(1)
        chosen.append(_top(rank, width) + start * scores.shape[-1])
    indices = torch.cat(chosen, 1)
    return indices, scores.flatten(1).gather(1, indices)


def _select_by_bank(
    scores: Tensor, words: Tensor, banks: Tensor, count: int, width: int, size: int
) -> tuple[Tensor, Tensor]:
    """The best extensions, (b, N, m) with their banks, of each of `count` banks: indices and scores, (b, K).

    A bank with fewer extensions than its width is padded with rows of score -inf.
    """
    numbers = torch.arange(count, device=banks.device).unsqueeze(-1)
    is_in_bank = banks.flatten(1).unsqueeze(1) == numbers  # (b, count, N * m)
    rank = _ranks(scores, words, size).flatten(1).unsqueeze(1).masked_fill(~is_in_bank, torch.iinfo(torch.long).min)
    indices = _top(rank, width)
    total = scores.flatten(1).unsqueeze(1).expand_as(rank).gather(-1, indices)
    return indices.flatten(1), total.masked_fill(~is_in_bank.gather(-1, indices), MINUS_INF).flatten(1)


def _top(ranks: Tensor, width: int) -> Tensor:
    """The indices of the highest ranks, the highest first: (..., n) to (..., width), or n where there are fewer."""
    return ranks.topk(min(width, ranks.shape[-1])).indices


def _merge(pool: Pool, new: Pool, groups: int, pool_size: int) -> Pool:
    """The best of each group in the pool and among those that have just ended, (b, G * w, ...); of equals the older."""
    images = len(pool.rank)

    def join(old: Tensor, new: Tensor) -> Tensor:
        shape = (images * groups, -1, *old.shape[2:])
        return torch.cat([old.reshape(shape), new.reshape(shape)], 1)

    merged = map_tensors(pool, join, new)
    size = merged.rank.shape[1]
    age = torch.arange(size, device=merged.rank.device)
    indices = _top(merged.rank * size + (size - 1 - age), pool_size)
    return map_tensors(merged, lambda x: gather_rows(x, indices).reshape(images, groups * pool_size, *x.shape[2:]))


def _deduplicate(pool: Pool, groups: int, pool_size: int, num_return: int) -> Pool:
    """The best of each group, then the second best of each, until there are `num_return` distinct ones; ranked."""
    if groups == 1:
        return pool
    interleaved = torch.arange(groups * pool_size, device=pool.rank.device).view(groups, pool_size).T.flatten()
    pool = map_tensors(pool, lambda x: x[:, interleaved])
    words, logprobs = pool.hypotheses.words, pool.hypotheses.logprobs
    is_dropped = is_repeat(words) | (pool.rank == EMPTY)
    unused = is_dropped.unsqueeze(-1)
    kept = replace(
        pool.hypotheses, words=words.masked_fill(unused, Vocabulary.pad), logprobs=logprobs.masked_fill(unused, 0.0)
    )
    pool = Pool(kept, pool.score.masked_fill(is_dropped, MINUS_INF), pool.rank.masked_fill(is_dropped, EMPTY))
    first = is_dropped.long().sort(dim=-1, stable=True).indices[:, :num_return]
    pool = map_tensors(pool, lambda x: gather_rows(x, first))
    order = pool.rank.sort(dim=-1, descending=True, stable=True).indices
    return map_tensors(pool, lambda x: gather_rows(x, order))
