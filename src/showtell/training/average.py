"""An exponential moving average of the weights, with which captions are made.

    avg <- d avg + (1 - d) w   after each step,   d = min(decay, (1 + n) / (10 + n))

where n counts the steps before. The second bound, as TensorFlow's `ExponentialMovingAverage` has it, lets the average
forget where the weights began. Running statistics of batch norm are averaged likewise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Average:
    """The average of the weights that learn and of the floating-point buffers of some modules.

    Args:
        modules: their names and the modules.
        decay: 0 keeps the last weights, nearly 1 averages over 1 / (1 - decay) steps.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float) -> None:
        self.decay = decay
        self._live: dict[str, Tensor] = {
            f"{part}.{name}": tensor.detach()
            for part, module in modules.items()
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]
            if tensor.is_floating_point() and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))
        }
        self.tensors = {name: tensor.clone() for name, tensor in self._live.items()}

    def update(self, steps: int) -> None:
        """Take in the weights after a step, before which there were so many."""
        if self.tensors:
            share = 1 - min(self.decay, (1 + steps) / (10 + steps))
            torch._foreach_lerp_(list(self.tensors.values()), list(self._live.values()), share)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to averages that were kept."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    def restart(self) -> None:
        """Begin anew with the weights as they are."""
        self.load(self._live)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the modules have the averaged weights, behind it their own again."""
        own = {name: tensor.clone() for name, tensor in self._live.items()}
        try:
            self._put(self.tensors)
            yield
        finally:
            self._put(own)

    def _put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._live.items():
            tensor.copy_(tensors[name])
