"""Communication between the processes of a run, for terms that depend on the whole batch.

Most terms are sums over images, which the trainer adds up. Ranks and means over the captions of a batch are not: they
are computed over all processes here, with the same result as one process with the whole batch. Process p of P has the
images p, p + P, p + 2P ... of the batch (`training/batches.py`). No gradient flows between processes. Every process
must call these functions, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerate.state import PartialState
from accelerate.utils import gather, pad_across_processes, reduce
from torch import Tensor


def sum_over_processes(x: Tensor) -> Tensor:
    """The sum of a tensor over processes (all-reduce)."""
    total: Tensor = reduce(x, "sum")
    return total


def over_whole_batch(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, is_word: Tensor) -> Tensor:
    """Apply a function to the rows of all processes and return its result for the rows of this one.

    Args:
        function: of (B, N, T) values and (B, N, T) bool `is_word` to (B, N, T). Its result may depend neither on
            the order of images nor on rows and steps without a word.
        values: (B, N, T).
        is_word: (B, N, T) bool; False everywhere in a dummy batch.

    Returns:
        (B, N, T).
    """
    state = PartialState()
    if state.num_processes == 1:
        return function(values, is_word)
    pair = torch.stack([values.detach(), is_word.to(values.dtype)])  # (2, B, N, T)
    padded = pad_across_processes(pad_across_processes(pair, dim=3), dim=1)
    gathered: Tensor = gather(padded.unsqueeze(0))  # (P, 2, B of the largest, N, T of the longest)
    result = function(gathered[:, 0].flatten(0, 1), gathered[:, 1].flatten(0, 1) > 0)
    images, _, steps = values.shape
    return result.view_as(gathered[:, 0])[state.process_index, :images, :, :steps]


def roll_images(x: Tensor, is_dummy: bool) -> Tensor | None:
    """The rows of the next image in the whole batch for each image; the last image gets those of the first.

    Args:
        x: (B, R, D), of each image.
        is_dummy: `Batch.is_dummy`.

    Returns:
        (B, largest R of any process, D), padded with 0, or None if the whole batch is one image.
    """
    state = PartialState()
    images = int(sum_over_processes(torch.tensor(0 if is_dummy else len(x), device=x.device)))
    if images == 1:
        return None
    padded = pad_across_processes(pad_across_processes(x.detach(), dim=1))
    gathered: Tensor = gather(padded.unsqueeze(0))  # (P, B of the largest, R of the largest, D)
    own = torch.arange(len(x), device=x.device) * state.num_processes + state.process_index
    following = (own + 1) % images
    return gathered[following % state.num_processes, following // state.num_processes]
