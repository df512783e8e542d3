"""Optimisers of torch by name, with a group of weights for each learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from showtell.features import Encoder
from showtell.objectives import Objective
from showtell.training.recipe import OptimizerConfig, Recipe

# name: (class, its arguments beside learning rate and weight decay). A step in one kernel ("fused") computes what the
# loop over weights does, two to four times as fast on a CPU.
OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], tuple[str, ...]]] = {
    "adam": (partial(torch.optim.Adam, fused=True), ("betas", "eps")),
    "adamw": (partial(torch.optim.AdamW, fused=True), ("betas", "eps")),
    "adamax": (torch.optim.Adamax, ("betas", "eps")),
    "sgd": (partial(torch.optim.SGD, fused=True), ("momentum",)),
    "rmsprop": (partial(torch.optim.RMSprop, centered=True), ("momentum", "alpha", "eps")),
}
_SETTINGS = {"eps": "epsilon", "alpha": "decay"}  # their names in recipes, where they are others


def make_optimizer(weights: Iterable[Any], settings: OptimizerConfig, lr: float) -> Optimizer:
    """The optimiser of that name over weights, or groups of them."""
    make, names = OPTIMIZERS[settings.name]
    arguments = {name: getattr(settings, _SETTINGS.get(name, name)) for name in names}
    return make(weights, lr=lr, weight_decay=settings.weight_decay, **arguments)


def build_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """A recipe's optimiser, with groups for the encoder's learning rates and those of parts of the decoder."""
    rate = recipe.training.learning_rate
    encoder, objective = model.encoder, model.objective
    assert isinstance(encoder, Encoder) and isinstance(objective, Objective)
    own = {f"decoder.{part}.": rate * share for part, share in objective.rates.items()}
    named = {n: p for n, p in model.named_parameters() if p.requires_grad and not n.startswith("encoder.")}
    groups: list[dict[str, Any]] = [
        {"params": [p for n, p in named.items() if not n.startswith(tuple(own))], "lr": rate},
        *({"params": [p for n, p in named.items() if n.startswith(part)], "lr": at} for part, at in own.items()),
    ]
    groups += [{"params": weights, "lr": at or rate} for at, weights in encoder.parameter_groups()]
    for group in groups:
        group["initial_lr"] = group["lr"]
    return make_optimizer(groups, recipe.training.optimizer, rate)
