"""Products with weights in oneDNN's own order, for few rows on a CPU.

A step of a decoder multiplies matrices of megabytes with a handful of rows. The library that torch calls for float32
on a CPU brings the matrix into its own order anew in every call, which takes longer than the product; oneDNN, which
is part of torch too, can keep a matrix in its own order. `product` keeps such a copy beside a large weight, and
`single` lets oneDNN order a matrix that is used once; with many rows it is the faster library too.

The copy is made anew when the weight has changed, by torch's own count of changes (the one that autograd relies on)
and after every step of an optimiser, because the fused optimisers do not count theirs. Like autograd, it does not see
numbers that somebody writes into `weight.data`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

_WORTH_PACKING = 2**17  # numbers in a weight; below, calling oneDNN costs more than it saves

# weight: {(columns, transposed): (its count of changes, where its numbers are, the packed copy)}, as long as it lives.
_packed_copies: WeakIdKeyDictionary = WeakIdKeyDictionary()
register_optimizer_step_post_hook(lambda *_: _packed_copies.clear())


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN may and should multiply these; nothing is differentiated by it."""
    return (
        weight.numel() >= _WORTH_PACKING
        and weight.device.type == "cpu"
        and x.dtype == weight.dtype
        and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))
        and not weight.is_inference()  # such a tensor does not count its changes
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and torch.backends.mkldnn.is_available()
    )


def single(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b, with W as it lies: (..., in) and (out, in) to (..., out)."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def product(
    x: Tensor, weight: Tensor, bias: Tensor | None, first: int, last: int, *, is_transposed: bool = False
) -> Tensor:
    """x W' + b by the packed copy of the columns first to last of W, or x W for the transposed.

    Args:
        x: (..., last - first), or (..., out) for the transposed.
        weight: W, (out, in), a tensor that lives on: the copy is kept as long as it does.
        bias: b, (out).
        first: the first column.
        last: the column behind the last.
        is_transposed: x W, the product of a gradient, in place of x W'.
    """
    return single(x, _packed(weight, first, last, is_transposed), bias)


def _packed(weight: Tensor, first: int, last: int, is_transposed: bool) -> Tensor:
    """The packed copy of these columns of a weight, as it is now."""
    copies = _packed_copies.setdefault(weight, {})
    now = (weight._version, weight.data_ptr())
    known = copies.get((first, last, is_transposed))
    if known is None or known[0] != now:
        part = weight.detach()[:, first:last]
        part = (part.T if is_transposed else part).contiguous()
        known = copies[first, last, is_transposed] = (now, torch.ops.mkldnn._reorder_linear_weight(part, None))
    return known[1]
