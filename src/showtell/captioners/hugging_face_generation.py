"""Captions and log-probabilities by the `generate` of transformers.

Captions are searched for by it, with our settings under its names. The log-probabilities of given texts come from it as
well: it is made to choose their tokens, one after the other. So a model is only ever run as its own library runs it,
whatever it does with positions, masks and caches, and what a search reports is what `logprobs` gives.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from showtell.captioners.hugging_face_families import Inputs
from showtell.counter_rng import CounterRNG
from showtell.decoding.sampling import inverse_cdf
from showtell.decoding_config import DecodingConfig
from showtell.hub import quiet

LOGITS_MEMORY = 2 * 2**30  # bytes of logits that a call of generate may keep


@dataclass(frozen=True)
class Generated:
    """The tokens of a caption, with natural logarithms of their probabilities before any rule of the search."""

    tokens: list[int]  # without what stands before and after the caption
    logprobs: list[float]
    end: float  # of any token that ends a caption
    finished: bool
    score: float | None = None  # what a beam ranked it by
    logits: Tensor | None = None  # (T + 1, V) on the processor, the end's last, if they were asked for

    @property
    def logprob(self) -> float:
        """Of the caption, with its end if it has one."""
        return sum(self.logprobs) + (self.end if self.finished else 0.0)


@dataclass(frozen=True)
class TokenIds:
    """The tokens of a model that have a meaning here."""

    end: list[int]  # that end a caption
    vocabulary: int  # how many tokens there are
    begin: int | None = None  # that the model's settings force in front of the caption
    bad: tuple[tuple[int, ...], ...] = ()  # sequences that a caption must not contain


def rows_that_fit(vocabulary: int, steps: int, rows_of_photo: int, scores: bool = False) -> int:
    """How many photos a call may have, so that its logits fit into the memory for them."""
    bytes_of_photo = 4 * vocabulary * steps * rows_of_photo * (2 if scores else 1)
    return max(1, LOGITS_MEMORY // bytes_of_photo)


def search(
    model: Any,
    part: Any,
    inputs: Inputs,
    settings: DecodingConfig,
    ids: TokenIds,
    image_ids: Sequence[str],
) -> list[list[Generated]]:
    """The captions of each photo, the best first; samples with the same tokens once.

    Args:
        model: whose `generate` is called.
        part: of the model, that generates and has the settings.
        inputs: of B photos.
        settings: that the captioner honours.
        ids: tokens of the model.
        image_ids: B names that samples depend on.
    """
    extra = 0 if ids.begin is None else 1  # the forced token counts
    samples = settings.num_return_sequences
    changes: dict[str, Any] = {
        "num_return_sequences": samples,
        "max_length": None,
        "max_new_tokens": settings.max_length + extra,
        "min_length": 0,
        "min_new_tokens": settings.min_length + extra if settings.min_length else None,
        "no_repeat_ngram_size": settings.no_repeat_ngram_size,
        "num_beams": settings.num_beams if settings.kind == "beam" else 1,
    }
    if ids.bad:
        changes["bad_words_ids"] = [list(sequence) for sequence in ids.bad]
    processors: list[Any] = []
    if settings.kind == "sample":
        changes |= _SAMPLE
        rng = CounterRNG(settings.seed, 0, image_ids)
        processors = [_Draw(settings, rng, samples, settings.max_length + extra + 1)]
    else:
        changes["do_sample"] = False
    if settings.kind == "beam":
        penalty = length_penalty(settings)
        if penalty is not None:
            changes["length_penalty"] = penalty
    output, config = _generate(model, part, inputs, processors, **changes)
    rows = _read(output, config, ids)
    count = len(image_ids)
    captions = [rows[index * samples : (index + 1) * samples] for index in range(count)]
    if settings.kind == "sample":
        return [_distinct(of_photo) for of_photo in captions]
    return [[row for row in of_photo if row is not None] for of_photo in captions]


def length_penalty(settings: DecodingConfig) -> float | None:
    """The exponent of the length that a beam divides log-probabilities by; None is the model's own."""
    if settings.length_normalisation == "none":
        return 0.0
    if settings.length_normalisation is None and settings.length_penalty is None:
        return None
    return 1.0 if settings.length_penalty is None else settings.length_penalty


def force(
    model: Any,
    part: Any,
    inputs: Inputs,
    texts: Sequence[Sequence[Sequence[int]]],
    ids: TokenIds,
    *,
    keep_logits: bool = False,
) -> list[list[Generated]]:
    """Given captions, teacher-forced.

    Args:
        model: whose `generate` is called.
        part: of the model, that generates and has the settings.
        inputs: of B photos.
        texts: for each of the B photos the tokens of captions, as many for each photo.
        ids: tokens of the model.
        keep_logits: keep the logits of each token and of the end.
    """
    begin = [] if ids.begin is None else [ids.begin]
    rows = [[*begin, *text] for of_photo in texts for text in of_photo]
    steps = max(map(len, rows)) + 1
    end = ids.end[0]
    tokens = torch.tensor([[*row, *[end] * (steps - len(row))] for row in rows])
    count = len(texts[0])
    output, config = _generate(
        model, part, inputs, [_Force(tokens)], num_return_sequences=count, num_beams=1, max_length=None,
        max_new_tokens=steps, min_length=0, min_new_tokens=None, **_SAMPLE,
    )  # fmt: skip
    forced = _read(output, config, ids, lengths=[len(row) - len(begin) for row in rows], keep_logits=keep_logits)
    results = [row for row in forced if row is not None]
    return [results[index * count : (index + 1) * count] for index in range(len(texts))]


_WEIGHING = {
    "repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "guidance_scale": 1.0, "diversity_penalty": 0.0,
    "exponential_decay_length_penalty": None, "sequence_bias": None, "watermarking_config": None,
    "renormalize_logits": False,
}  # fmt: skip
# Sampling, with the choice taken out of its hands: its own rules before the choice change nothing.
_SAMPLE: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}


def _generate(model: Any, part: Any, inputs: Inputs, processors: list[Any], **changes: Any) -> tuple[Any, Any]:
    """Call `generate`: what it returns, with the logits of each step, and its settings."""
    from transformers import LogitsProcessorList

    config = copy.deepcopy(part.generation_config)
    for name, value in changes.items():
        setattr(config, name, value)
    config.return_dict_in_generate = config.output_logits = True
    # Rules that change probabilities, other than to 0, change what beams are ranked by.
    ranks_otherwise = any(getattr(config, name, None) not in (None, neutral) for name, neutral in _WEIGHING.items())
    config.output_scores = config.num_beams > 1 and ranks_otherwise
    penalty, mask = getattr(config, "repetition_penalty", None), inputs.get("attention_mask")
    if penalty not in (None, 1.0) and mask is not None and not bool(mask.all()):
        config.repetition_penalty = 1.0
        processors = [_Repetition(penalty, mask), *processors]
    with torch.no_grad(), quiet():
        output = model.generate(**inputs, generation_config=config, logits_processor=LogitsProcessorList(processors))
    return output, config


def _read(
    output: Any, config: Any, ids: TokenIds, lengths: Sequence[int] | None = None, keep_logits: bool = False
) -> list[Generated | None]:
    """The rows that `generate` returned; None for a beam that it could not fill.

    Args:
        output: of generate.
        config: its settings.
        ids: tokens of the model.
        lengths: tokens of the captions if they were given; a caption that was searched for ends at its end token.
        keep_logits: keep the logits.
    """
    logits = output.logits  # for each step (rows, V)
    beams = getattr(output, "beam_indices", None)  # (rows, steps): where each token was chosen from; -1 behind the end
    steps = len(logits) if beams is None else beams.shape[1]
    tokens = output.sequences[:, output.sequences.shape[1] - steps :]  # (rows, steps)
    sources = torch.arange(len(tokens), device=tokens.device).unsqueeze(1).expand_as(tokens) if beams is None else beams
    end_ids = torch.tensor(ids.end, device=tokens.device)
    logprobs, ends = [], []
    for step in range(steps):
        here = logits[step] if beams is None else logits[step][sources[:, step].clamp_min(0).long()]  # (rows, V)
        total = here.logsumexp(-1)
        logprobs.append(here.gather(1, tokens[:, step : step + 1]).squeeze(1) - total)
        ends.append(here[:, end_ids].logsumexp(-1) - total)
    table = torch.stack(logprobs, 1).tolist()
    end_table = torch.stack(ends, 1).tolist()
    skip = 0 if ids.begin is None else 1
    is_end = frozenset(ids.end)
    generated: list[Generated | None] = []
    for row, chosen in enumerate(tokens.tolist()):
        if beams is not None:
            chosen = chosen[: int((beams[row] >= 0).sum())]
        if not chosen:
            generated.append(None)
            continue
        if lengths is not None:
            length, finished = lengths[row], True
        else:
            length = next((step for step in range(skip, len(chosen)) if chosen[step] in is_end), len(chosen)) - skip
            finished = length + skip < len(chosen)
            forced_end = getattr(config, "forced_eos_token_id", None) is not None
            if finished and forced_end and length + skip + 1 == config.max_new_tokens:
                at_limit = logits[length + skip][sources[row, length + skip]]
                finished = int(at_limit.argmax()) in is_end  # else it was the limit that ended it
        stop = skip + length
        scored = len(chosen) if finished else stop
        kept = None
        if keep_logits:
            kept = torch.stack([logits[step][sources[row, step]] for step in range(skip, stop + 1)]).float().cpu()
        generated.append(
            Generated(
                chosen[skip:stop],
                table[row][skip:stop],
                end_table[row][stop] if stop < len(chosen) else -math.inf,
                finished,
                None if beams is None else _score(output, config, row, table[row][skip:scored], len(chosen)),
                kept,
            )
        )
    return generated


def _score(output: Any, config: Any, row: int, logprobs: Sequence[float], length: int) -> float:
    """What a beam was ranked by: a row's log-probability, over its number of tokens to the power of the penalty."""
    if getattr(output, "sequences_scores", None) is not None:
        return float(output.sequences_scores[row])
    penalty = 1.0 if config.length_penalty is None else config.length_penalty  # it is what generate takes then
    return float(sum(logprobs) / length**penalty)


def _distinct(rows: Sequence[Generated | None]) -> list[Generated]:
    """Different captions, the most likely first."""
    first: dict[tuple[int, ...], Generated] = {}
    for row in rows:
        if row is not None:
            first.setdefault((*row.tokens, row.finished), row)
    return sorted(first.values(), key=lambda row: -row.logprob)


class _Force:
    """Leaves one token possible at each step: (rows, steps)."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens = tokens
        self._step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step = min(self._step, self._tokens.shape[1] - 1)
        self._step += 1
        return _only(self._tokens[:, step].to(scores.device), scores)


class _Repetition:
    """The repetition penalty of transformers, for prompts of different lengths: mask (B, P) is 0 for padding.

    By itself it counts padding as a token of the prompt, so that captions would depend on the other photos of a batch.
    """

    def __init__(self, penalty: float, mask: Tensor) -> None:
        from transformers import RepetitionPenaltyLogitsProcessor

        self._penalise: Any = RepetitionPenaltyLogitsProcessor(penalty)
        self._mask = mask

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        is_padding = self._mask.repeat_interleave(len(scores) // len(self._mask), 0) == 0  # (rows, P)
        prompt = input_ids[:, : is_padding.shape[1]]
        ids = torch.cat((torch.where(is_padding, prompt[:, -1:], prompt), input_ids[:, is_padding.shape[1] :]), 1)
        penalised: Tensor = self._penalise(ids, scores)
        return penalised


class _Draw:
    """Leaves the token possible that is drawn at each step: a function of seed, image, sample and step alone.

    A draw of torch's own would depend on the other photos of the batch.
    """

    def __init__(self, settings: DecodingConfig, rng: CounterRNG, samples: int, steps: int) -> None:
        from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

        self._warpers: list[Any] = []
        if settings.temperature != 1:
            self._warpers.append(TemperatureLogitsWarper(settings.temperature))
        if settings.top_k is not None:
            self._warpers.append(TopKLogitsWarper(settings.top_k))
        if settings.top_p < 1:
            self._warpers.append(TopPLogitsWarper(settings.top_p))
        self._rng, self._samples, self._steps = rng, samples, steps
        self._uniform: Tensor | None = None  # (rows, steps)
        self._step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self._uniform is None:
            images = len(scores) // self._samples
            self._uniform = self._rng.uniform((images, self._samples, self._steps), scores.device).flatten(0, 1)
        weighed = scores
        for warper in self._warpers:
            weighed = warper(input_ids, weighed)
        numbers = self._uniform[:, self._step]
        self._step += 1
        return _only(inverse_cdf(weighed.softmax(-1), numbers), scores)


def _only(tokens: Tensor, scores: Tensor) -> Tensor:
    """Scores (rows, V) that leave one token (rows,) possible."""
    return torch.full_like(scores, -math.inf).scatter_(1, tokens.unsqueeze(1), 0.0)
