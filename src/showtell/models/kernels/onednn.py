"""Matrix products by oneDNN on a CPU, with weights prepacked in its layout.

A step of a decoder multiplies matrices of megabytes with a handful of rows. The library that torch calls for float32
on a CPU repacks the matrix into its own layout in every call, which takes longer than the product; oneDNN, which
is part of torch too, can keep a packed copy. `packed_product` keeps one beside a large weight, and
`product` lets oneDNN pack a matrix that is used once. With many rows it is the faster library too, except on processors
of Intel, for which torch's default is written (MKL): there `PREFERS_DEFAULT` is true, and the transposed products of a
backward pass are not packed either, since to transpose and pack a matrix takes longer than a step's products gain.

The copy is renewed when the weight has changed, by torch's version counter (the one that autograd relies on), and
after every step of an optimiser, because fused optimisers do not increase the counter. Like autograd, it does not
notice writes into `weight.data`.

The operators are private to torch. If a version of torch lacks them, `supports` returns False.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakIdKeyDictionary

from showtell.models.kernels.switch import is_plain

MIN_PACKED_NUMEL = 2**17  # numbers in a weight; below, calling oneDNN costs more than it saves

# weight: {(columns, transposed): (its version, its address, the packed copy)}, as long as it lives.
_packed_copies: Any = WeakIdKeyDictionary()
register_optimizer_step_post_hook(lambda *_: _packed_copies.clear())

_HAS_OPERATORS = torch._C._has_mkldnn and all(
    hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")
)
_HAS_BFLOAT16 = _HAS_OPERATORS and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _is_intel() -> bool:
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        about = platform.processor()
    return "GenuineIntel" in about


PREFERS_DEFAULT = torch._C.has_mkl and _is_intel()  # for matrices of many rows


def supports(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN can and should multiply these; the product has no gradient."""
    return (
        _HAS_OPERATORS
        and weight.numel() >= MIN_PACKED_NUMEL
        and not is_plain()
        and weight.device.type == "cpu"
        and x.dtype == weight.dtype
        and (x.dtype == torch.float32 or (x.dtype == torch.bfloat16 and _HAS_BFLOAT16))
        and not weight.is_inference()  # an inference tensor has no version counter
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


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


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W' + b, with W in its usual layout: (..., in) and (out, in) to (..., out)."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def packed_product(
    x: Tensor, weight: Tensor, bias: Tensor | None, start: int, stop: int, *, is_transposed: bool = False
) -> Tensor:
    """x W' + b by the packed copy of the columns start to stop of W, or x W for the transposed.

    Args:
        x: (..., stop - start), or (..., out) for the transposed.
        weight: W, (out, in), a tensor that stays alive: the copy is kept as long.
        bias: b, (out).
        start: the first column.
        stop: one past the last column.
        is_transposed: x W, the product of a gradient, instead of x W'.
    """
    packed = _packed(weight, start, stop, is_transposed)
    return product(x, packed, bias)


def _packed(weight: Tensor, start: int, stop: int, is_transposed: bool) -> Tensor:
    """The up-to-date packed copy of these columns of a weight."""
    copies = _packed_copies.setdefault(weight, {})
    version = (weight._version, weight.data_ptr())
    cached = copies.get((start, stop, is_transposed))
    if cached is None or cached[0] != version:
        part = weight.detach()[:, start:stop]
        part = (part.T if is_transposed else part).contiguous()
        cached = copies[start, stop, is_transposed] = (version, torch.ops.mkldnn._reorder_linear_weight(part, None))
    return cast(Tensor, cached[1])
