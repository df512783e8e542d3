"""An exponential moving average of the weights, with which captions are made: torch's `AveragedModel` with a warm-up.

    avg <- d avg + (1 - d) w   after each step,   d = min(decay, (1 + n) / (10 + n))

where n counts the steps before. The second bound (TensorFlow's `ExponentialMovingAverage`) lets the average forget
where the weights began. Running statistics of batch norm are averaged likewise.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

Tensors = tuple[Tensor, ...] | list[Tensor]


class WeightAverage:
    """The averages of some modules, as modules of their own; those without a weight that learns are left as they are.

    Args:
        modules: their names and the modules.
        decay: 0 keeps the last weights, nearly 1 averages over 1 / (1 - decay) steps.
    """

    def __init__(self, modules: Mapping[str, nn.Module], decay: float) -> None:
        def average(averages: Tensors, weights: Tensors, count: Tensor | int) -> None:
            steps = int(count) - 1  # the weights of the beginning are counted too
            if averages[0].is_floating_point():
                torch._foreach_lerp_(averages, weights, 1 - min(decay, (1 + steps) / (10 + steps)))
            else:  # such as the batches that batch norm counts
                torch._foreach_copy_(averages, weights)

        learning = {
            name: module for name, module in modules.items() if any(p.requires_grad for p in module.parameters())
        }
        self._live = nn.ModuleDict(learning)
        self._averaged = AveragedModel(self._live, multi_avg_fn=average, use_buffers=True)
        self._averaged.update_parameters(self._live)  # the first call copies
        averages = self._averaged.module
        assert isinstance(averages, nn.ModuleDict)
        self.modules = {**modules, **averages}

    def update(self) -> None:
        """Take in the weights after a step."""
        self._averaged.update_parameters(self._live)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The averages, by name: of weights that learn and of floating-point buffers."""
        return _averaged_tensors(self._averaged.module)

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Restore averages that were saved after a number of steps."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])
        self._averaged.n_averaged.fill_(steps + 1)

    def restart(self) -> None:
        """Begin again with the weights as they are; the steps count on."""
        live = _averaged_tensors(self._live)
        for name, tensor in self.tensors.items():
            tensor.copy_(live[name])


def _averaged_tensors(modules: nn.Module) -> dict[str, Tensor]:
    return {
        name: tensor.detach()
        for name, tensor in [*modules.named_parameters(), *modules.named_buffers()]
        if tensor.is_floating_point() and (tensor.requires_grad or not isinstance(tensor, nn.Parameter))
    }
