"""Captions and log-probabilities by the `generate` of transformers.

Our settings are passed to it under its own names. The log-probabilities of given texts come from it as well: a logits
processor forces their tokens, one after the other. So a model runs only as its own library runs it, whatever it does
with positions, masks and caches, and the log-probabilities of a search are those of `logprobs`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from showtell.captioners.hugging_face_families import Inputs
from showtell.counter_rng import CounterRNG
from showtell.decoding.sampling import inverse_cdf
from showtell.decoding_config import DecodingConfig

# Sampling without its own rules: our logits processor chooses the token.
_SAMPLE: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "num_beams": 1}


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
        """The log-probability of the caption, with its end if it has one."""
        return sum(self.logprobs) + (self.end if self.finished else 0.0)


@dataclass(frozen=True)
class Generator:
    """A model, and the part of it that generates and has the generation settings."""

    model: Any
    part: Any

    @property
    def end_ids(self) -> list[int]:
        """The tokens, any of which ends a caption."""
        end = self.part.generation_config.eos_token_id
        return list(end) if isinstance(end, list | tuple) else [int(end)]

    @property
    def begin(self) -> list[int]:
        """What the model's settings force in front of a caption: a token or nothing."""
        begin = getattr(self.part.generation_config, "forced_bos_token_id", None)
        return [] if begin is None else [begin]

    @property
    def vocabulary_size(self) -> int:
        """The number of logits of a token."""
        return int(self.part.config.get_text_config(decoder=True).vocab_size)

    def search(
        self, inputs: Inputs, settings: DecodingConfig, bad: list[list[int]], names: Sequence[str], keep_logits: bool
    ) -> list[list[Generated]]:
        """The captions of B photos, the best first, without `bad` sequences; equal samples (drawn by names) once."""
        extra, samples = len(self.begin), settings.num_return_sequences  # the forced token counts
        changes: dict[str, Any] = {
            "num_return_sequences": samples,
            "max_new_tokens": settings.max_length + extra,
            "min_new_tokens": settings.min_length + extra if settings.min_length else None,
            "no_repeat_ngram_size": settings.no_repeat_ngram_size,
            **({"bad_words_ids": bad} if bad else {}),
        }
        if settings.kind == "sample":
            rng = CounterRNG(settings.seed, 0, names)
            shape = (len(names), samples, settings.max_length + extra + 1)
            draw = _draw(settings, rng.uniform(shape, self.model.device).flatten(0, 1))
            rows = self._generate(inputs, [draw], {**changes, **_SAMPLE}, keep_logits)
            return [_distinct(of_photo) for of_photo in _by_photo(rows, samples)]
        beams: dict[str, Any] = {"do_sample": False, "num_beams": settings.num_beams if settings.kind == "beam" else 1}
        if settings.length_penalty is not None:  # else the model's own
            beams["length_penalty"] = settings.length_penalty
        return _by_photo(self._generate(inputs, [], {**changes, **beams}, keep_logits), samples)

    def force(self, inputs: Inputs, texts: Sequence[Sequence[Sequence[int]]]) -> list[list[Generated]]:
        """Given captions, teacher-forced: of inputs of B photos, and the tokens of as many captions for each photo."""
        rows = [[*self.begin, *text] for of_photo in texts for text in of_photo]
        steps = max(map(len, rows)) + 1
        tokens = torch.tensor([[*row, *self.end_ids[:1] * (steps - len(row))] for row in rows])
        count = len(texts[0])
        changes = {**_SAMPLE, "num_return_sequences": count, "max_new_tokens": steps, "min_new_tokens": None}
        following = iter(tokens.to(self.model.device).unbind(1))
        return _by_photo(self._generate(inputs, [lambda _, scores: _only(next(following), scores)], changes), count)

    def _generate(
        self, inputs: Inputs, processors: list[Any], changes: dict[str, Any], keep_logits: bool = False
    ) -> list[Generated | None]:
        """The rows that `generate` gives; None for a beam that it could not fill."""
        from transformers import LogitsProcessorList

        config = copy.deepcopy(self.part.generation_config)
        for name, value in {"max_length": None, "min_length": 0, **changes}.items():
            setattr(config, name, value)
        config.return_dict_in_generate = config.output_logits = True
        config.output_scores = config.num_beams > 1
        rules = LogitsProcessorList(processors)
        with torch.no_grad():
            output = self.model.generate(**inputs, generation_config=config, logits_processor=rules)
        return self._read(output, config, keep_logits)

    def _read(self, output: Any, config: Any, keep_logits: bool) -> list[Generated | None]:
        beams = getattr(output, "beam_indices", None)  # (rows, steps): where each token was chosen; -1 behind the end
        steps = len(output.logits) if beams is None else beams.shape[1]
        tokens = output.sequences[:, output.sequences.shape[1] - steps :]  # (rows, steps)
        logits = output.logits[:steps]  # for each step (all rows, V)
        if beams is not None:
            logits = [of_step[beams[:, step].clamp_min(0).long()] for step, of_step in enumerate(logits)]
        totals = torch.stack([of_step.logsumexp(-1) for of_step in logits], 1)
        chosen = torch.stack([of_step.gather(1, tokens[:, [i]]).squeeze(1) for i, of_step in enumerate(logits)], 1)
        logprobs = (chosen - totals).tolist()
        ends = (torch.stack([of_step[:, self.end_ids].logsumexp(-1) for of_step in logits], 1) - totals).tolist()
        lengths = [steps] * len(tokens) if beams is None else (beams >= 0).sum(1).tolist()
        scores = [None] * len(tokens) if beams is None else output.sequences_scores.tolist()
        skip = len(self.begin)
        rows: list[Generated | None] = []
        for row, (ids, steps) in enumerate(zip(tokens.tolist(), lengths, strict=True)):
            stop = next((step for step in range(skip, steps) if ids[step] in self.end_ids), steps)
            finished = stop < steps
            if finished and stop + 1 == config.max_new_tokens and config.forced_eos_token_id is not None:
                finished = int(logits[stop][row].argmax()) in self.end_ids  # else it was the limit that ended it
            own = (
                torch.stack([of_step[row] for of_step in logits[skip : stop + 1]]).float().cpu()
                if keep_logits
                else None
            )
            end = ends[row][stop] if stop < steps else -math.inf
            made = Generated(ids[skip:stop], logprobs[row][skip:stop], end, finished, scores[row], own)
            rows.append(made if steps else None)
        return rows


def _by_photo(rows: Sequence[Generated | None], count: int) -> list[list[Generated]]:
    groups = [rows[start : start + count] for start in range(0, len(rows), count)]
    return [[row for row in of_photo if row is not None] for of_photo in groups]


def _distinct(rows: Sequence[Generated]) -> list[Generated]:
    """Different captions, the most likely first."""
    first: dict[tuple[int, ...], Generated] = {}
    for row in rows:
        first.setdefault((*row.tokens, row.finished), row)
    return sorted(first.values(), key=lambda row: -row.logprob)


def _draw(settings: DecodingConfig, uniform: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A logits processor that draws tokens by uniform numbers (rows, steps), whatever the batch, and masks others."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(settings.temperature)]
    warpers += [TopKLogitsWarper(settings.top_k)] if settings.top_k is not None else []
    warpers += [TopPLogitsWarper(settings.top_p)] if settings.top_p < 1 else []
    following = iter(uniform.unbind(1))

    def draw(input_ids: Tensor, scores: Tensor) -> Tensor:
        warped = scores
        for warper in warpers:
            warped = warper(input_ids, warped)
        return _only(inverse_cdf(warped.softmax(-1), next(following)), scores)

    return draw


def _only(tokens: Tensor, scores: Tensor) -> Tensor:
    """Scores (rows, V) that mask all tokens but one per row, (rows,)."""
    return torch.full_like(scores, -math.inf).scatter_(1, tokens.unsqueeze(1), 0.0)
