"""Beam search over any decoder: plain, in diverse groups, or with required words; no Python loop over images or beams.

At each step the beam of an image becomes the best extensions of its hypotheses. Those that end leave the beam for the
pool of finished ones, where no extension can push them out; the others go on. An image is done when no hypothesis is
left, or when none that is left could still get into the pool: log-probabilities only fall, so what a hypothesis has,
over the most favourable divisor of the length penalty, bounds what it may get. Images that are done leave the batch.

Diverse groups (Vijayakumar et al., "Diverse beam search", 2016, algorithm 1 with Hamming diversity): the groups of an
image choose one after the other, and a word costs `diversity` for each time that an earlier group has just chosen it.
The penalty steers the choice; scores and log-probabilities that come back are without it.

Required words: one beam of `num_beams` for each number of required words that are met (`constraints.py`). A hypothesis
may end only when all are. Where none manages, the ones cut off with most of them come back, unfinished.

Ties: of equal hypotheses the one from the lower parent row comes first, then the lower id; in the pool the one that
ended first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from showtell.decoding.active_batch import ActiveBatch, take_images
from showtell.decoding.constraints import Constraints
from showtell.decoding.ranking import LengthPenalty, best, keys, ordered
from showtell.decoding.rollout import Captions, collect, gather_by_backpointers, is_repeat
from showtell.decoding.rules import LogitsProcessor, Rules
from showtell.models.contract import Decoder, Output, gather_rows, take_rows
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

NO_RULES = Rules()
NO_PENALTY = LengthPenalty()
NOTHING = float("-inf")
TIER = 1 << 33  # above the range of `ordered`: a better tier beats any score
EMPTY = -(1 << 48)  # below every tier, and far enough from overflow


@dataclass(frozen=True)
class Hypotheses:
    """What rows have said; L is the limit on the length and one for end."""

    words: Tensor  # (b, N, L) int64
    logprobs: Tensor  # (b, N, L)
    path: Tensor  # (b, N, L) int64, the row of the beam that said each word


@dataclass(frozen=True)
class Live:
    """The beam."""

    said: Hypotheses
    total: Tensor  # (b, N) log-probability so far; -inf for a row that holds nothing
    states: Tensor  # (b, N, P) of the required phrases


@dataclass(frozen=True)
class Pool:
    """The hypotheses that have ended, G groups of the best n each, in falling order."""

    said: Hypotheses  # (b, G * n, L)
    score: Tensor  # (b, G * n)
    rank: Tensor  # (b, G * n) int64: first the tier, then the score; EMPTY where there is none


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
    """The best captions that a beam of a given width finds.

    With as many beams as there are captions this is exhaustive search; with one it is `greedy`. At the limit on the
    length a hypothesis ends if `end` is its likeliest word and is cut off otherwise.

    Args:
        decoder: any decoder.
        features: of B images.
        max_length: at most this many words, `end` not counted.
        num_beams: K, of all groups together; with required words, for each number of them that are met.
        num_return: captions per image, at most K; None is K. Fewer may be found sooner.
        groups: G, a divisor of K. Each brings its best captions in turn, the same words once.
        diversity: what a word costs a group, in log-probability, for each earlier one that has just chosen it.
        length_penalty: how captions of different lengths are compared once they have ended.
        rules: what may and must be said; required words need one group.
        keep_outputs: whether `Captions.outputs` is wanted.
    """
    wanted = num_beams if num_return is None else num_return
    images, device = len(features.vectors), features.vectors.device
    width = num_beams // groups
    kept = wanted if groups == 1 else width  # in the pool, per group
    state = decoder.start(features)
    last = torch.full((images, 1), Vocabulary.begin, device=device)
    active_batch = ActiveBatch(images, device)
    referee = LogitsProcessor(rules, max_length=max_length, device=device)
    constraints = Constraints(rules.required, device)
    live = Live(
        _nothing_said(images, 1, max_length + 1, device),
        torch.zeros(images, 1, device=device),  # all rows are alike before the first word: there is but one
        constraints.start(images),
    )
    pool, whole = (_empty_pool(images, groups * kept, max_length + 1, device) for _ in range(2))
    outputs: list[tuple[Tensor, Output]] = []
    for step in range(max_length + 1):  # one more for end
        output, state = decoder.step(last, state)
        logprobs = decoder.readout(output).log_softmax(-1, dtype=torch.float32)
        size = logprobs.shape[-1]
        referee.forbid(logprobs, live.said.words[..., :step])
        if rules.required:
            logprobs[..., Vocabulary.end].masked_fill_(~constraints.is_met(live.states), NOTHING)
        gains, words = _extensions(logprobs, live, constraints, num_beams, at_limit=step == max_length)
        if referee.can_leave_nothing and step < max_length:
            _cut_off_the_stuck(gains, words)
        scores = live.total.unsqueeze(-1) + gains  # (b, N, m)
        if rules.required:
            states = constraints.after(live.states, words)  # (b, N, m, P)
            chosen, total = _of_each_bank(scores, words, states.sum(-1), constraints.words + 1, num_beams, size)
            states = gather_rows(states.flatten(1, 2), chosen)
        else:
            chosen, total = _of_each_group(scores, words, groups, width, diversity, size)
            states = live.states
        parents = chosen // scores.shape[-1]
        last = words.flatten(1).gather(1, chosen).masked_fill(total.isneginf(), Vocabulary.pad)
        said = map_tensors(live.said, lambda x, parents=parents: gather_rows(x, parents))
        said.words[..., step] = last
        said.logprobs[..., step] = gains.flatten(1).gather(1, chosen).masked_fill(last == Vocabulary.pad, 0.0)
        said.path[..., step] = parents
        stops = ((last == Vocabulary.end) | (last == Vocabulary.pad)) & ~total.isneginf()
        live = Live(said, total.masked_fill(stops, NOTHING), states)
        if keep_outputs:
            outputs.append((active_batch.images, output))
        if not active_batch.asks_freely or bool(stops.any()):
            ended = last == Vocabulary.end
            score = torch.where(
                ended, total / length_penalty.divisor(step + 1), total / length_penalty.divisor(step)
            ).masked_fill(~stops, NOTHING)
            # A caption that had nothing left to say is the last resort; next come those with most required words.
            tier = 1 + live.states.sum(-1) if step == max_length else torch.where(ended, 1 + constraints.words, 0)
            rank = torch.where(stops, tier * TIER + ordered(score), EMPTY)
            pool = _better(pool, Pool(said, score, rank), groups, kept)
        bound = live.total.unflatten(1, (groups, -1)).amax(-1) / max(
            length_penalty.divisor(step + 1), length_penalty.divisor(max_length + 1)
        )
        worst = pool.rank.unflatten(1, (groups, kept))[..., -1]
        is_done = (bound.isneginf() | (worst >= (1 + constraints.words) * TIER + ordered(bound))).all(-1)
        staying = active_batch.leave(is_done, step, last=step == max_length)
        if staying is not None:
            active_batch.store(whole, pool)
            if not len(staying):
                break
            active_batch.images, live, pool, last = take_images((active_batch.images, live, pool, last), staying)
            state, parents = take_images((state, parents), staying)
        state = take_rows(state, parents)
    found = _different(whole, groups, kept, wanted)
    return collect(
        found.said.words,
        found.said.logprobs,
        found.score,
        gather_by_backpointers(outputs, found.said.path, images) if outputs else None,
    )


def _nothing_said(images: int, rows: int, length: int, device: torch.device) -> Hypotheses:
    return Hypotheses(
        torch.full((images, rows, length), Vocabulary.pad, device=device),
        torch.zeros(images, rows, length, device=device),
        torch.zeros(images, rows, length, dtype=torch.long, device=device),
    )


def _empty_pool(images: int, rows: int, length: int, device: torch.device) -> Pool:
    return Pool(
        _nothing_said(images, rows, length, device),
        torch.full((images, rows), NOTHING, device=device),
        torch.full((images, rows), EMPTY, device=device),
    )


def _extensions(
    logprobs: Tensor, live: Live, constraints: Constraints, num_beams: int, *, at_limit: bool
) -> tuple[Tensor, Tensor]:
    """What each row may say next: log-probabilities and words, (b, N, m).

    The `num_beams` best words of each row are enough: a beam takes no more of one row, and of the words after these a
    diverse group would take one only if all of these were penalised, which are at most those of the groups before.
    """
    if at_limit:
        gain, likeliest = best(logprobs, 1)
        ends = (likeliest == Vocabulary.end) & ~gain.isneginf()
        return gain.masked_fill(~ends, 0.0), torch.where(ends, Vocabulary.end, Vocabulary.pad)
    gains, words = best(logprobs, min(num_beams, logprobs.shape[-1]))
    if constraints.words:
        due = constraints.next_words(live.states)  # (b, N, P)
        known = torch.cat([words, due], -1).unsqueeze(-2) == due.unsqueeze(-1)  # (b, N, P, m + P)
        is_new = known.long().argmax(-1) == words.shape[-1] + torch.arange(due.shape[-1], device=due.device)
        gains = torch.cat([gains, logprobs.gather(-1, due).masked_fill(~is_new, NOTHING)], -1)
        words = torch.cat([words, due], -1)
    return gains, words


def _cut_off_the_stuck(gains: Tensor, words: Tensor) -> None:
    """Let rows that may say nothing say pad at no cost, in place."""
    stuck = gains.isneginf().all(-1)
    gains[..., 0].masked_fill_(stuck, 0.0)
    words[..., 0].masked_fill_(stuck, Vocabulary.pad)


def _ranks(scores: Tensor, words: Tensor, size: int) -> Tensor:
    """Integers in the order of extensions (b, N, m): by score, then the lower row, then the lower id."""
    rows = scores.shape[1]
    return keys(scores, torch.arange(rows, device=words.device).unsqueeze(-1) * size + words, rows * size)


def _of_each_group(
    scores: Tensor, words: Tensor, groups: int, width: int, diversity: float, size: int
) -> tuple[Tensor, Tensor]:
    """The extensions that the groups choose among (b, N, m), one group after the other: places and scores, (b, K)."""
    rows = scores.shape[1]
    said = words.masked_fill(scores.isneginf(), -1).flatten(1)  # a row that holds nothing says nothing
    chosen: list[Tensor] = []
    for group in range(groups):
        # Before the first word the only row is that of all groups.
        start, stop = (0, 1) if rows == 1 else (group * rows // groups, (group + 1) * rows // groups)
        own, following = scores[:, start:stop], words[:, start:stop]
        if chosen:
            before = said.gather(1, torch.cat(chosen, 1))[:, None, None]
            own = own - diversity * (following.unsqueeze(-1) == before).sum(-1)
        rank = _ranks(own, following, size).flatten(1)
        chosen.append(_top(rank, width) + start * scores.shape[-1])
    found = torch.cat(chosen, 1)
    return found, scores.flatten(1).gather(1, found)


def _of_each_bank(
    scores: Tensor, words: Tensor, banks: Tensor, count: int, width: int, size: int
) -> tuple[Tensor, Tensor]:
    """The best extensions, (b, N, m) with their banks, of each of `count` banks: places and scores, (b, K).

    A bank with fewer extensions than its width is filled up with rows of score -inf.
    """
    is_of = banks.flatten(1).unsqueeze(1) == torch.arange(count, device=banks.device).unsqueeze(-1)  # (b, count, N * m)
    rank = _ranks(scores, words, size).flatten(1).unsqueeze(1).masked_fill(~is_of, torch.iinfo(torch.long).min)
    found = _top(rank, width)
    total = scores.flatten(1).unsqueeze(1).expand_as(rank).gather(-1, found)
    return found.flatten(1), total.masked_fill(~is_of.gather(-1, found), NOTHING).flatten(1)


def _top(ranks: Tensor, width: int) -> Tensor:
    """The places of the highest ranks, the highest first: (..., n) to (..., width), or n where there are fewer."""
    return ranks.topk(min(width, ranks.shape[-1])).indices


def _better(pool: Pool, offered: Pool, groups: int, kept: int) -> Pool:
    """The pool with what has just ended, (b, G * w, ...), the best of each group; of equal ones the older."""
    images = len(pool.rank)

    def join(old: Tensor, new: Tensor) -> Tensor:
        shape = (images * groups, -1, *old.shape[2:])
        return torch.cat([old.reshape(shape), new.reshape(shape)], 1)

    together = map_tensors(pool, join, offered)
    size = together.rank.shape[1]
    age = torch.arange(size, device=together.rank.device)
    places = _top(together.rank * size + (size - 1 - age), kept)
    return map_tensors(together, lambda x: gather_rows(x, places).reshape(images, groups * kept, *x.shape[2:]))


def _different(pool: Pool, groups: int, kept: int, wanted: int) -> Pool:
    """The best of each group, then the second best of each, until there are `wanted` different ones; ranked."""
    if groups == 1:
        return pool
    in_turn = torch.arange(groups * kept, device=pool.rank.device).view(groups, kept).T.flatten()
    pool = map_tensors(pool, lambda x: x[:, in_turn])
    words = pool.said.words
    is_left_out = is_repeat(words) | (pool.rank == EMPTY)
    pool = Pool(
        replace(
            pool.said,
            words=words.masked_fill(is_left_out.unsqueeze(-1), Vocabulary.pad),
            logprobs=pool.said.logprobs.masked_fill(is_left_out.unsqueeze(-1), 0.0),
        ),
        pool.score.masked_fill(is_left_out, NOTHING),
        pool.rank.masked_fill(is_left_out, EMPTY),
    )
    first = is_left_out.long().sort(dim=-1, stable=True).indices[:, :wanted]
    pool = map_tensors(pool, lambda x: gather_rows(x, first))
    order = pool.rank.sort(dim=-1, descending=True, stable=True).indices
    return map_tensors(pool, lambda x: gather_rows(x, order))
