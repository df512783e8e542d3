"""Matrix products by oneDNN on a CPU: weights packed in its layout, and factors rounded to bfloat16.

A step of a decoder multiplies matrices of megabytes with a handful of rows. The library that torch calls for float32
on a CPU repacks the matrix in every call, which takes longer than the product. `linear` keeps a packed copy beside a
large weight, and renews it when torch's version counter of the weight has changed, and after every step of an
optimiser, as fused ones do not increase the counter. Like autograd, it does not notice writes into `weight.data`.

The operators are private to torch. If a version of torch lacks them, `supports` returns False.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from showtell.models.kernels import plain

MIN_PACKED_NUMEL = 2**17  # numbers in a weight; below, calling oneDNN costs more than it saves

# weight: {columns: (its version, its address, the packed copy)}, as long as it lives.
_packed_copies: Any = WeakIdKeyDictionary()
register_optimizer_step_post_hook(lambda *_: _packed_copies.clear())

_HAS_OPERATORS = torch._C._has_mkldnn and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)
_HAS_BFLOAT16 = _HAS_OPERATORS and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, offset: int = 0) -> Tensor:
    """x W' + b with some columns of W; with gradients (training) by torch's own function.

    Args:
        x: (..., P).
        weight: W, a parameter, (out, in). The columns offset to offset + P are used.
        bias: b, (out).
        offset: the first column.

    Returns:
        (..., out).
    """
    if not torch.is_grad_enabled() and supports(x, weight):
        packed = _packed(weight, offset, offset + x.shape[-1])
        return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], ""))
    return plain.linear(x, weight, bias, offset=offset)


def supports(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can and should multiply these; the product has no gradient."""
    return (
        _HAS_OPERATORS
        and weight.numel() >= MIN_PACKED_NUMEL
        and not plain.is_plain()
        and weight.device.type == "cpu"
        and x.dtype == weight.dtype
        and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and _HAS_BFLOAT16))
        and not weight.is_inference()  # an inference tensor has no version counter
        and not torch.is_autocast_enabled("cpu")
    )


def _packed(weight: Tensor, start: int, stop: int) -> Tensor:
    """The up-to-date packed copy of the columns start to stop of a weight, kept as long as that lives."""
    copies = _packed_copies.setdefault(weight, {})
    version = (weight._version, weight.data_ptr())
    cached = copies.get((start, stop))
    if cached is None or cached[0] != version:
        part = weight.detach()[:, start:stop].contiguous()
        cached = copies[start, stop] = (version, torch.ops.mkldnn._reorder_linear_weight(part, None))
    return cast(Tensor, cached[1])


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Inside the block the factors of products and convolutions of float32 are rounded to bfloat16; sums stay float32.

    Where the processor multiplies bfloat16, that is several times as fast. Tensors keep their precision, so that
    all else is computed as before, which autocast slows down: it converts between any two operations.
    """
    library: Any = torch.backends.mkldnn
    kinds = (library.matmul, library.conv)
    before = [kind.fp32_precision for kind in kinds]
    try:
        for kind in kinds:
            kind.fp32_precision = "bf16"
        yield
    finally:
        for kind, precision in zip(kinds, before, strict=True):
            kind.fp32_precision = precision


def can_round_products() -> bool:
    """Whether `bfloat16_products` is to be had: by the processor, and by torch (2.9 or later)."""
    return _HAS_BFLOAT16 and hasattr(torch.backends.mkldnn, "matmul")
