"""RMSprop as Graves wrote it (2013, equations 38 to 45), which Xu et al. 2015 used for Flickr8k.

    n <- rho n + (1 - rho) g^2
    m <- rho m + (1 - rho) g
    d <- mu d - lr g / sqrt(n - m^2 + eps)
    w <- w + d

with rho = 0.95, mu = 0.9, lr = 0.0001 and eps = 0.0001. torch's `RMSprop(centered=True)` adds eps outside the root:
where gradients are small, its steps are up to sqrt(eps) / eps = 100 times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
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
            if weights := [weight for weight in group["params"] if weight.grad is not None]:
                self._step_of(weights, group)

    def _step_of(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    name: torch.zeros_like(weight) for name in ("square_average", "average", "last_step")
                }
        gradients = [weight.grad for weight in weights if weight.grad is not None]  # all of them
        if group["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
        n = [self.state[weight]["square_average"] for weight in weights]
        m = [self.state[weight]["average"] for weight in weights]
        d = [self.state[weight]["last_step"] for weight in weights]
        rho = group["decay"]
        torch._foreach_mul_(n, rho)
        torch._foreach_addcmul_(n, gradients, gradients, 1 - rho)
        torch._foreach_lerp_(m, gradients, 1 - rho)
        root = torch._foreach_mul(m, m)
        torch._foreach_sub_(root, n)
        torch._foreach_neg_(root)  # n - m^2 is a variance, and rounding may put it a little below 0
        torch._foreach_clamp_min_(root, 0.0)
        torch._foreach_add_(root, group["eps"])
        torch._foreach_sqrt_(root)
        torch._foreach_mul_(d, group["momentum"])
        torch._foreach_addcdiv_(d, gradients, root, -group["lr"])
        torch._foreach_add_(weights, d)
