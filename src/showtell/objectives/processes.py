"""What an objective asks of the other processes of a run, where a term depends on the whole batch.

Most terms are sums over images, which the trainer adds up. Ranks and means over the captions of a batch are not: they
are taken over all processes here, so that they are those of one process with the whole batch. Process p of P has the
images p, p + P, p + 2P ... of the batch (`training/batches.py`). No gradient passes between processes. Every process
has to ask, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerate.state import PartialState
from accelerate.utils import gather, pad_across_processes, reduce
from torch import Tensor


def summed(x: Tensor) -> Tensor:
    """The sum over processes."""
    total: Tensor = reduce(x, "sum")
    return total


def of_whole_batch(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, is_word: Tensor) -> Tensor:
    """What a function makes of the rows of all processes, for the rows of this one.

    Args:
        function: of (B, N, T) numbers and (B, N, T) bool, where there is one, to (B, N, T). Neither the order of
            images nor rows and steps without a word matter to it.
        values: (B, N, T).
        is_word: (B, N, T) bool; nowhere in a batch that is not counted.

    Returns:
        (B, N, T).
    """
    state = PartialState()
    if state.num_processes == 1:
        return function(values, is_word)
    pair = torch.stack([values.detach(), is_word.to(values.dtype)])  # (2, B, N, T)
    padded = pad_across_processes(pad_across_processes(pair, dim=3), dim=1)
    everyone: Tensor = gather(padded.unsqueeze(0))  # (P, 2, B of the largest, N, T of the longest)
    result = function(everyone[:, 0].flatten(0, 1), everyone[:, 1].flatten(0, 1) > 0)
    images, _, steps = values.shape
    return result.view_as(everyone[:, 0])[state.process_index, :images, :, :steps]


def of_next_image(x: Tensor, is_counted: bool) -> Tensor | None:
    """What belongs to the image behind each one in the whole batch, the first one following the last.

    Args:
        x: (B, R, D), of each image.
        is_counted: whether the batch is.

    Returns:
        (B, R of the process that has most, D), padded with 0, or None where the whole batch is one image.
    """
    state = PartialState()
    images = int(summed(torch.tensor(len(x) * is_counted, device=x.device)))
    if images == 1:
        return None
    padded = pad_across_processes(pad_across_processes(x.detach(), dim=1))
    everyone: Tensor = gather(padded.unsqueeze(0))  # (P, B of the largest, R of the largest, D)
    own = torch.arange(len(x), device=x.device) * state.num_processes + state.process_index
    behind = (own + 1) % images
    return everyone[behind % state.num_processes, behind // state.num_processes]
