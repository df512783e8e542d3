"""Scores of attention on a GPU, compiled by torch: one kernel, without the tensor of (B, N, R, A).

Compiling takes some seconds for each shape, so that only what is captured (`cuda_graphs.py`) is compiled. Where there
is no compiler, and inside `plain_kernels`, the plain form runs.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from showtell.cuda_graphs import is_static
from showtell.models.kernels import plain
from showtell.models.kernels.plain import Activation, is_plain

_failed = False


def can_compile(projected: Tensor) -> bool:
    """Whether compiled scores should be tried for these."""
    return projected.is_cuda and is_static() and not is_plain() and not _failed


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(plain.additive_scores, dynamic=False)


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation) -> Tensor:
    """`plain.additive_scores`, compiled if that succeeds."""
    global _failed
    try:
        return cast(Tensor, _compiled()(projected, query, weight, activation))
    except Exception as error:  # noqa: BLE001  (no Triton, no compiler for its launcher, ...: each raises its own)
        _failed = True
        first_line = str(error).strip().partition("\n")[0]
        warnings.warn(f"attention is not compiled, which costs time and memory: {first_line}", stacklevel=2)
        return plain.additive_scores(projected, query, weight, activation)
