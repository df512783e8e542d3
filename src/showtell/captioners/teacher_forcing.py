"""Given words under a decoder: captions as padded ids, and the log-probability of each of their words."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.decoding import teacher_forced
from showtell.models import Decoder
from showtell.models.kernels import log_likelihood
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


def word_logprobs(decoder: Decoder, features: Features, words: Tensor) -> Tensor:
    """The log-probability of each given word, end included: words (B, N, T + 1) to (B, N, T), 0 for padding."""
    targets = words[..., 1:]
    logprobs = log_likelihood(teacher_forced(decoder, features, words[..., :-1]).logits, targets)
    return logprobs.masked_fill(targets == Vocabulary.pad, 0)


def pad_captions(images: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Ids of captions as (B, N, T + 1): short captions are padded, missing ones are padding alone."""
    most = max(1, *map(len, images))
    rows = [torch.tensor(ids) for image in images for ids in [*image, *[[Vocabulary.begin]] * (most - len(image))]]
    padded = pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad)
    return torch.unflatten(padded, 0, (len(images), most))
