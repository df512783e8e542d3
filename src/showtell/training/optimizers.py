"""Optimisers by name, torch's and ours, with a group of weights for each learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from showtell.features import Encoder
from showtell.objectives import Objective
from showtell.training.recipe import OptimizerConfig, Recipe
from showtell.training.rmsprop_graves import RMSpropGraves

# name: (class, its arguments from our settings). A step in one kernel ("fused") computes what the loop over weights
# does, two to four times as fast on a CPU; with weight decay that of SGD makes no second set of gradients either.
OPTIMIZERS: dict[str, tuple[Callable[..., Optimizer], Callable[[OptimizerConfig], dict[str, Any]]]] = {
    "adam": (
        torch.optim.Adam,
        lambda c: {"betas": c.betas, "eps": c.epsilon, "weight_decay": c.weight_decay, "fused": True},
    ),
    "adamw": (
        torch.optim.AdamW,
        lambda c: {"betas": c.betas, "eps": c.epsilon, "weight_decay": c.weight_decay, "fused": True},
    ),
    "adamax": (
        torch.optim.Adamax,
        lambda c: {"betas": c.betas, "eps": c.epsilon, "weight_decay": c.weight_decay},
    ),
    "sgd": (torch.optim.SGD, lambda c: {"momentum": c.momentum, "weight_decay": c.weight_decay, "fused": True}),
    "rmsprop": (
        torch.optim.RMSprop,
        lambda c: {"momentum": c.momentum, "alpha": c.decay, "eps": c.epsilon, "weight_decay": c.weight_decay},
    ),
    "rmsprop_graves": (
        RMSpropGraves,
        lambda c: {"momentum": c.momentum, "decay": c.decay, "eps": c.epsilon, "weight_decay": c.weight_decay},
    ),
}


def build_optimizer(model: nn.Module, recipe: Recipe) -> Optimizer:
    """The optimiser of a recipe.

    Args:
        model: with `encoder`, whose weights have learning rates of their own where the recipe gives them, and
            `objective`, which may have other rates for parts of the decoder.
        recipe: its training.optimizer and training.learning_rate.
    """
    settings = recipe.training.optimizer
    make, arguments = OPTIMIZERS[settings.name]
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
    return make(groups, **arguments(settings))
