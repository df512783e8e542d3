"""Linear layers and LSTM cells whose weights are packed once, for products with few rows on a CPU.

A step of a decoder multiplies matrices of megabytes with a handful of rows. The library that torch calls for float32
on a CPU brings the matrix into its own order anew in every call, which takes longer than the product; oneDNN, which
is part of torch too, can keep a matrix in its own order. `Linear` and `LSTMCell` are torch's layers, with torch's
parameters, that keep such a copy beside a large weight while nothing is differentiated. In every other case (training,
a GPU, autocast, small weights) they are torch's layers unchanged.

The copy is made anew when the weight has changed, by torch's own count of changes (the one that autograd relies on)
and after every step of an optimiser, because the fused optimisers do not count theirs. Like autograd, it does not see
numbers that somebody writes into `weight.data`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

_WORTH_PACKING = 2**17  # numbers in a weight; below, calling oneDNN costs more than it saves

# weight: {columns: (its count of changes, where its numbers are, the packed copy)}. It lives as long as the weight.
_packed_copies: WeakIdKeyDictionary = WeakIdKeyDictionary()
register_optimizer_step_post_hook(lambda *_: _packed_copies.clear())


def _is_packed(x: Tensor, weight: Tensor) -> bool:
    """Whether this product uses the packed copy of its weight."""
    return (
        not torch.is_grad_enabled()
        and weight.numel() >= _WORTH_PACKING
        and weight.device.type == "cpu"
        and x.dtype == weight.dtype
        and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()))
        and not weight.is_inference()  # such a tensor does not count its changes
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and torch.backends.mkldnn.is_available()
    )


def _packed(weight: Tensor, first: int, last: int) -> Tensor:
    """The packed copy of these columns of a weight, as it is now."""
    copies = _packed_copies.setdefault(weight, {})
    now = (weight._version, weight.data_ptr())
    known = copies.get((first, last))
    if known is None or known[0] != now:
        part = weight.detach()[:, first:last].contiguous()
        known = copies[first, last] = (now, torch.ops.mkldnn._reorder_linear_weight(part, None))
    return known[1]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, first: int = 0) -> Tensor:
    """x W' + b with some columns of W, by its packed copy where that is faster.

    Args:
        x: (..., P).
        weight: W, a parameter, (out, in). The columns first to first + P are used.
        bias: b, (out).
        first: the first column.

    Returns:
        (..., out).
    """
    size = x.shape[-1]
    if _is_packed(x, weight):
        return torch.ops.mkldnn._linear_pointwise(x, _packed(weight, first, first + size), bias, "none", [], "")
    return F.linear(x, weight[:, first : first + size], bias)


class Linear(nn.Linear):
    """torch's linear layer, faster for few rows where nothing is differentiated."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        return linear(input, self.weight, self.bias)


class LSTMCell(nn.LSTMCell):
    """torch's LSTM cell, faster for few rows where nothing is differentiated."""

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """One step: (M, in) and the state (h, c), each (M, H), to the next state; None is a state of zeros."""
        if hx is None or not (_is_packed(input, self.weight_ih) and _is_packed(hx[0], self.weight_hh)):
            return super().forward(input, hx)
        hidden, cell = hx
        gates = linear(input, self.weight_ih, self.bias_ih).add_(linear(hidden, self.weight_hh, self.bias_hh))
        i, f, g, o = gates.chunk(4, -1)  # torch's order
        cell = f.sigmoid_() * cell + i.sigmoid_() * g.tanh_()
        return o.sigmoid_() * cell.tanh(), cell
