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
    return reduce(x, "sum")  # type: ignore[no-any-return]


def over_whole_batch(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, is_word: Tensor) -> Tensor:
    """The function's result for the rows of this process, computed with those of all: (B, N, T) and bool to (B, N, T).

    It may depend neither on the order of images nor on what is no word, as nothing of a dummy batch is.
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
    """Each image's vectors, (B, R, D), replaced by those of the next of the whole batch; None if that is one image."""
    state = PartialState()
    images = int(sum_over_processes(torch.tensor(0 if is_dummy else len(x), device=x.device)))
    if images == 1:
        return None
    padded = pad_across_processes(pad_across_processes(x.detach(), dim=1))
    gathered: Tensor = gather(padded.unsqueeze(0))  # (P, B of the largest, R of the largest, D)
    own = torch.arange(len(x), device=x.device) * state.num_processes + state.process_index
    following = (own + 1) % images
    return gathered[following % state.num_processes, following // state.num_processes]
