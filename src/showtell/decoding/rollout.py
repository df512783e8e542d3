"""What walks over time return, and teacher forcing, the walk along given words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.cuda_graphs import Steps, is_static, run
from showtell.decoding.stages import StageView
from showtell.models.contract import Decoder, Output, gather_rows
from showtell.models.kernels import log_likelihood
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, TensorRecord, map_tensors, stack_over_time


@dataclass(frozen=True)
class TeacherForcedOutput:
    """Logits and outputs of a decoder that is fed given words."""

    logits: Tensor  # (B, N, T, V)
    outputs: Output  # its tensors (B, N, T, ...)


@dataclass(frozen=True, repr=False)
class Captions(TensorRecord):
    """K captions for each of B images, the best first; samples in the order in which they were drawn."""

    words: Tensor  # (B, K, T) int64: the words, end if it came, then pad
    is_word: Tensor  # (B, K, T) bool, True for words and for end
    word_logprobs: Tensor  # (B, K, T) natural logarithm, as the model has it; 0 where there is no word
    logprob: Tensor  # (B, K) their sum; -inf in unused rows, where there are fewer captions than K
    score: Tensor  # (B, K) what they are ranked by: logprob over the length penalty's divisor
    is_finished: Tensor  # (B, K) bool, True where end came before the limit
    outputs: Output | None = None  # tensors (B, K, T, ...) along the path of each caption, if kept

    @property
    def attention(self) -> Tensor | None:
        """(B, K, T, R) attention of each word, if outputs were kept and the model attends; 0 where there is no word."""
        return None if self.outputs is None else self.outputs.attention


def teacher_forced(decoder: Decoder, features: Features, words: Tensor) -> TeacherForcedOutput:
    """Feed given words, (B, N, T) int64, begin first, and read out all steps in one matrix product."""
    outputs = decoder.forced_outputs(features, words)
    return TeacherForcedOutput(decoder.readout(outputs), outputs)


def word_logprobs(decoder: Decoder, features: Features, words: Tensor) -> Tensor:
    """The log-probability of each given word, end included: words (B, N, T + 1) to (B, N, T), 0 for padding."""
    targets = words[..., 1:]
    logprobs = log_likelihood(teacher_forced(decoder, features, words[..., :-1]).logits, targets)
    return logprobs.masked_fill(targets == Vocabulary.pad, 0)


def pad_captions(images: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Ids of captions as (B, N, T + 1): short captions are padded, missing ones are padding alone."""
    most = max(1, *map(len, images))
    rows = [torch.tensor(ids) for image in images for ids in [*image, *[[Vocabulary.begin, 0]] * (most - len(image))]]
    return torch.unflatten(pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad), 0, (len(images), most))


def collect(words: Tensor, logprobs: Tensor, score: Tensor | None = None, outputs: Output | None = None) -> Captions:
    """The captions of a walk, by words and log-probabilities (B, K, T) and scores (B, K), -inf where there is none."""
    is_word = words != Vocabulary.pad
    total = logprobs.sum(-1)
    if score is not None:
        total = total.masked_fill(score.isneginf(), float("-inf"))
    return Captions(
        words=words, is_word=is_word, word_logprobs=logprobs, logprob=total, score=total if score is None else score,
        is_finished=(words == Vocabulary.end).any(-1),
        outputs=None if outputs is None else _mask_outputs(outputs, is_word),
    )  # fmt: skip


def run_search(steps: Callable[[Any], Steps[Captions]], inputs: Any, decoder: Decoder, settings: Hashable) -> Captions:
    """The captions of a search, by its graphs where it is captured; `settings` are all it depends on but tensors."""
    owner, stage = (decoder.decoder, decoder.stage) if isinstance(decoder, StageView) else (decoder, None)
    return trimmed(run(steps, inputs, owner=owner, key=(settings, stage)))


def trimmed(captions: Captions) -> Captions:
    """Captions as long as the longest of them; as they are where shapes are static."""
    if is_static():
        return captions
    longest = max(1, int(captions.is_word.sum(-1).max()))
    changed = {name: getattr(captions, name)[..., :longest] for name in ("words", "is_word", "word_logprobs")}
    outputs = None if captions.outputs is None else map_tensors(captions.outputs, lambda x: x[:, :, :longest])
    return dataclasses.replace(captions, **changed, outputs=outputs)


def deduplicate(captions: Captions) -> Captions:
    """The captions of each image without duplicates, the best first; unused rows have log-probability -inf."""
    content = captions.words.masked_fill(captions.words == Vocabulary.end, Vocabulary.pad)  # finished or cut off
    is_duplicate = (content.unsqueeze(1) == content.unsqueeze(2)).all(-1).tril(-1).any(-1)  # (B, K), of an earlier row
    score = captions.score.masked_fill(is_duplicate, float("-inf"))
    order = score.sort(dim=-1, descending=True, stable=True).indices
    logprob = captions.logprob.masked_fill(is_duplicate, float("-inf"))
    changed = dataclasses.replace(captions, score=score, logprob=logprob)
    return map_tensors(changed, lambda x: gather_rows(x, order))


def _mask_outputs(outputs: Output, is_word: Tensor) -> Output:
    """Outputs (B, K, T, ...), 0 where there is no word."""

    def mask(x: Tensor) -> Tensor:
        keep = is_word[..., : x.shape[2]]
        return x.masked_fill(~keep.reshape(*keep.shape, *[1] * (x.dim() - 3)), 0)

    return map_tensors(outputs, mask)


def gather_by_backpointers(steps: list[tuple[Tensor, Output]], paths: Tensor, images: int) -> Output:
    """The outputs along the path of each caption, (B, K, T, ...), from the active images and outputs of each step."""
    gathered = []
    for step, (indices, output) in enumerate(steps):
        rows = paths[indices, :, step]  # (b, K)

        def gather(x: Tensor, indices: Tensor = indices, rows: Tensor = rows) -> Tensor:
            all_images = x.new_zeros(images, rows.shape[1], *x.shape[2:])
            return all_images.index_copy_(0, indices, gather_rows(x, rows))

        gathered.append(map_tensors(output, gather))
    return stack_over_time(gathered)


def outputs_in_place(steps: list[tuple[Tensor, Output]], words: Tensor) -> Output:
    """The same for a walk whose rows keep their places: the outputs of its first K, whose words are (B, K, L)."""
    if is_static():
        return stack_over_time([map_tensors(output, lambda x: x[:, : words.shape[1]]) for _, output in steps])
    rows = torch.arange(words.shape[1], device=words.device)
    return gather_by_backpointers(steps, rows.unsqueeze(-1).expand_as(words), len(words))
