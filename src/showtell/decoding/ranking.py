"""Top-k with defined ties.

torch's `topk` leaves open which of several equal scores it takes, and devices differ. Here a score and its index become
one integer, so that no two are equal: of equal scores the lower index wins, on every device, whatever the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64  # numbers per chunk of the two-level search; measured: 16 and 256 are slower at a vocabulary of 9,488


def order_key(scores: Tensor) -> Tensor:
    """Integers in the order of float32 numbers: int64 between -2**31 and 2**31 - 1."""
    bits = (scores + 0.0).view(torch.int32)  # adding 0 turns -0 into 0
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()


def sort_keys(scores: Tensor, indices: Tensor, span: int) -> Tensor:
    """Integers in the order of float32 numbers, (..., n), of equal ones the lower of the indices below `span` first."""
    return order_key(scores) * span + (span - 1 - indices)


def stable_topk(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k highest scores in falling order, of equal ones the lower index first: values and indices, (..., k)."""
    size = scores.shape[-1]
    indices = torch.arange(size, device=scores.device)
    # In two levels: the k best lie in the k chunks with the best maxima, as any other has k numbers before its own.
    if size > 2 * CHUNK * k:
        whole = size - size % CHUNK
        maxima = torch.unflatten(scores[..., :whole], -1, (-1, CHUNK)).amax(-1)
        if whole < size:
            maxima = torch.cat([maxima, scores[..., whole:].amax(-1, keepdim=True)], -1)
        _, chunks = stable_topk(maxima, k)
        inside = chunks.unsqueeze(-1) * CHUNK + indices[:CHUNK]  # (..., k, 64)
        indices = inside.flatten(-2)
        beyond = indices >= size  # the last chunk may be a short one
        scores = scores.gather(-1, indices.clamp_max(size - 1)).masked_fill_(beyond, float("-inf"))
        size = maxima.shape[-1] * CHUNK
    _, top = sort_keys(scores, indices, size).topk(k)
    return scores.gather(-1, top), indices.gather(-1, top) if indices.dim() > 1 else top
