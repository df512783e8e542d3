"""Operations of a decoder step, each in a fast form and in a plain one that defines it.

| function          | plain form (`plain.py`)       | fast form                                                        |
|-------------------|-------------------------------|------------------------------------------------------------------|
| `linear`          | x W' + b with some columns    | packed weights, without gradients (`onednn.py`)                  |
| `additive_scores` | w . f(p + q)                  | C++ (`fused.py`, `compiled/`), on a GPU compiled by torch        |

Private operators of torch (`onednn.py`) are called here alone; a torch without them still works. Inside
`plain_kernels()`, or with SHOWTELL_KERNELS=plain in the environment, the plain forms run. Tests hold both equal.
"""

from __future__ import annotations

from showtell.models.kernels.fused import additive_scores
from showtell.models.kernels.onednn import bfloat16_products, can_round_products, linear
from showtell.models.kernels.plain import Activation, is_plain, log_likelihood, plain_kernels

__all__ = [
    "Activation", "additive_scores", "bfloat16_products", "can_round_products", "is_plain", "linear", "log_likelihood",
    "plain_kernels",
]  # fmt: skip
