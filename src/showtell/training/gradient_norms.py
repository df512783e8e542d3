"""Norms of the loss's gradient at the state after every step: does it vanish through time, or through stages?

For caption n of image b, with weights w of words and lambda of stages,

    L_bn = - sum_t w_bnt sum_i lambda_i log p_i(y_bnt | y_bn,<t, image b)
    norm_bnt = || dL_bn / ds_bnt ||_2

where s_bnt is a vector of the state after step t, such as the hidden vector of a layer or a stage. The derivative is
the total one: through all later steps, the layers and stages above in the same step, and the output layer; of an LSTM's
cell vector also through the hidden vector that is computed from it. papers/004 §2.1 argues that it vanishes through
time, papers/002 ("Learning") that it vanishes through stages, and that losses of the earlier stages restore it.

    norms = gradient_norms(decoder, features, words, weights=last_words(words[..., 1:]))
    by_steps_back(norms["hidden"], words[..., 1:])     # how much of the last word's loss arrives k steps earlier

`benchmarks/gradient_norms.py` measures recurrent cells and stages with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.decoding.likelihood import log_likelihood
from showtell.models.contract import Decoder, eval_mode, spread
from showtell.models.kernels import plain_kernels
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, stack_over_time


def gradient_norms(
    decoder: Decoder,
    features: Features,
    words: Tensor,
    *,
    weights: Tensor | None = None,
    stage_weights: Sequence[float] | None = None,
) -> dict[str, Tensor]:
    """The norm of each caption's gradient at every vector of its state after every step, in eval mode.

    Args:
        decoder: any decoder; its parameters and their gradients stay as they are.
        features: of B images.
        words: (B, N, T + 1) int64, begin first, padded.
        weights: (B, N, T) of each word's loss (default: 1 for all words, the end included).
        stage_weights: of each stage's loss, the coarsest first (default: 1 for all stages).

    Returns:
        By the name of a vector in the state's rows, such as "hidden" or "cell.2", the norms (B, N, T), float. Vectors
        that no gradient reaches have 0.
    """
    targets = words[..., 1:]
    is_word = targets != Vocabulary.pad
    weights = is_word if weights is None else weights * is_word
    outputs, steps = [], []
    with torch.enable_grad(), eval_mode(decoder), plain_kernels():  # a fused cell hides how h depends on c
        # A leaf that needs a gradient makes every state need one, though the weights be frozen.
        vectors = features.vectors.detach().clone().requires_grad_()
        state = spread(decoder.start(dataclasses.replace(features, vectors=vectors)), words.shape[1])
        for word in words[..., :-1].unbind(-1):
            output, state = decoder.step(word, state)
            outputs.append(output)
            steps.append(dict(_vectors(state.rows)))
        stacked = stack_over_time(outputs)
        loss = vectors.new_zeros(())
        for stage, weight in enumerate(stage_weights or [1.0] * decoder.stages):
            loss = loss - weight * (weights * log_likelihood(decoder.readout(stacked, stage), targets)).sum()
        reached = [(name, at) for at, step in enumerate(steps) for name in step if step[name].requires_grad]
        gradients = torch.autograd.grad(loss, [steps[at][name] for name, at in reached], allow_unused=True)
    norms = {name: vectors.new_zeros(targets.shape) for name in steps[0]}
    for (name, at), gradient in zip(reached, gradients, strict=True):
        if gradient is not None:
            norms[name][..., at] = gradient.flatten(2).norm(dim=-1)
    return norms


def _vectors(record: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The vectors (B, N, ...) of a state's rows by name: fields of records and positions in tuples, joined by dots."""
    if isinstance(record, Tensor):
        if record.is_floating_point() and record.dim() > 2:
            yield name, record
        return
    parts: list[tuple[object, Any]] = []
    if isinstance(record, tuple):
        parts = list(enumerate(record))
    elif dataclasses.is_dataclass(record):
        parts = [(field.name, getattr(record, field.name)) for field in dataclasses.fields(record)]
    for part, value in parts:
        yield from _vectors(value, f"{name}.{part}" if name else str(part))


def last_words(targets: Tensor) -> Tensor:
    """1 at the last target of each caption, which is the end where it is complete: (B, N, T) to (B, N, T) bool."""
    is_word = targets != Vocabulary.pad
    return is_word & ~F.pad(is_word[..., 1:], (0, 1))


def by_steps_back(norms: Tensor, targets: Tensor) -> Tensor:
    """The mean norm k steps before the last word, over the captions that are so long.

    Args:
        norms: (B, N, T).
        targets: (B, N, T) int64, padded.

    Returns:
        (T,), k = 0 first.
    """
    is_word = targets != Vocabulary.pad
    steps = is_word.sum(-1, keepdim=True) - 1 - torch.arange(targets.shape[-1], device=targets.device)
    back, values = steps[is_word], norms[is_word]
    sums = values.new_zeros(targets.shape[-1]).index_add(0, back, values)
    return sums / torch.bincount(back, minlength=targets.shape[-1])
