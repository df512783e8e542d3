"""Operations of a decoder step, each in a fast form and in a plain one that defines it; three are compiled too.

| function          | plain form (`plain.py`)                   | fast form                                          |
|-------------------|-------------------------------------------|----------------------------------------------------|
| `linear`          | x W' + b with some columns of W           | packed weights, gradients over time (`linear.py`)  |
| `embedding`       | rows of a table                           | gradients over time (`linear.py`)                  |
| `weighted_sum`    | alpha V                                   | gradients over time (`linear.py`)                  |
| `additive_scores` | w . f(p + q)                              | tiles in the cache, on a CPU (`tiles.py`)          |
| `lstm_gates`      | c' = f * c + i * g,  h' = o * tanh(c')    | few passes over the gates (`gates.py`)             |

Scores, gates and the log-likelihood of words (`decoding/likelihood.py`) run in C++ where there is a compiler
(`compiled.py`, `compiled.cpp`); inside `compiled_kernels(False)`, or with SHOWTELL_KERNELS=torch in the environment, by
torch's operators.

The fast forms call private operators of torch (`onednn.py`, `accumulation.py`): nothing outside of this package does.
Inside `plain_kernels()`, or with SHOWTELL_KERNELS=plain, the plain forms run and none of those are called: a torch
without them still works. Tests hold all forms equal.
"""

from __future__ import annotations

from showtell.models.kernels.accumulation import gathered_gradients
from showtell.models.kernels.gates import lstm_gates
from showtell.models.kernels.linear import embedding, linear, weighted_sum
from showtell.models.kernels.onednn import bfloat16_products, can_round_products
from showtell.models.kernels.plain import ACTIVATIONS, Activation
from showtell.models.kernels.switch import compiled_kernels, is_plain, plain_kernels
from showtell.models.kernels.tiles import additive_scores

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "additive_scores",
    "bfloat16_products",
    "can_round_products",
    "compiled_kernels",
    "embedding",
    "gathered_gradients",
    "is_plain",
    "linear",
    "lstm_gates",
    "plain_kernels",
    "weighted_sum",
]
