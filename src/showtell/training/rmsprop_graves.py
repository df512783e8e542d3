"""RMSprop as Graves wrote it (2013, equations 38 to 45), which Xu et al. 2015 used for Flickr8k.

    n <- rho n + (1 - rho) g^2
    m <- rho m + (1 - rho) g
    d <- mu d - lr g / sqrt(n - m^2 + eps)
    w <- w + d

with rho = 0.95, mu = 0.9, lr = 0.0001 and eps = 0.0001. torch's `RMSprop(centered=True)` adds eps outside the root:
where gradients are small, its steps are up to sqrt(eps) / eps = 100 times as long.
"""

from __future__ import annotations

import torch
from torch.optim.optimizer import Optimizer, ParamsT


class RMSpropGraves(Optimizer):
    """The steps above for each weight that has a gradient.

    Args:
        params: weights, or groups of them with settings of their own.
        lr: the learning rate.
        decay: rho, of the averages n and m.
        momentum: mu, of the step.
        eps: inside the root.
        weight_decay: how much of a weight is added to its gradient.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        decay: float = 0.95,
        momentum: float = 0.9,
        eps: float = 1e-4,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of every group."""
        for group in self.param_groups:
            rho = group["decay"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                if not self.state[weight]:
                    self.state[weight] = {name: torch.zeros_like(weight) for name in ("n", "m", "d")}
                n, m, d = (self.state[weight][name] for name in ("n", "m", "d"))
                gradient = weight.grad + group["weight_decay"] * weight if group["weight_decay"] else weight.grad
                n.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
                m.lerp_(gradient, 1 - rho)
                variance = (n - m * m).clamp_min_(0)  # rounding may put it a little below 0
                d.mul_(group["momentum"]).addcdiv_(gradient, (variance + group["eps"]).sqrt(), value=-group["lr"])
                weight.add_(d)
