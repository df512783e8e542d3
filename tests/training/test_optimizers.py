"""Optimisers: Graves' RMSprop by hand arithmetic, torch's as they are, and groups of weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from showtell.training.optimizers import OPTIMIZERS
from showtell.training.recipe import OptimizerConfig
from showtell.training.rmsprop_graves import RMSpropGraves


def test_rmsprop_graves_by_hand_over_four_steps():
    weight = nn.Parameter(torch.tensor([0.5, -1.0], dtype=torch.float64))
    optimizer = RMSpropGraves([weight])
    expected, n, m, d = [0.5, -1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for gradient in ([0.2, -3.0], [0.1, 0.0], [-0.4, 1.0], [0.0, 2.0]):
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        for i, g in enumerate(gradient):
            n[i] = 0.95 * n[i] + 0.05 * g * g
            m[i] = 0.95 * m[i] + 0.05 * g
            d[i] = 0.9 * d[i] - 1e-4 * g / math.sqrt(n[i] - m[i] * m[i] + 1e-4)
            expected[i] += d[i]
        assert weight.tolist() == pytest.approx(expected, rel=1e-12)
    # The first step of the first weight, worked out: n = 0.002 and m = 0.01, so n - m^2 + eps = 0.002.
    fresh = nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    fresh.grad = torch.tensor([0.2], dtype=torch.float64)
    RMSpropGraves([fresh]).step()
    assert float(fresh.detach()) == pytest.approx(0.5 - 2e-5 / math.sqrt(0.002), rel=1e-12)


def test_rmsprop_graves_is_not_torchs_where_gradients_are_small():
    steps = []
    for optimizer in (
        lambda weights: RMSpropGraves(weights, lr=1.0, momentum=0.0),
        lambda weights: torch.optim.RMSprop(weights, lr=1.0, alpha=0.95, eps=1e-4, centered=True),
    ):
        weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        weight.grad = torch.full((1,), 1e-6, dtype=torch.float64)
        optimizer([weight]).step()
        steps.append(float(weight.detach()))
    assert steps[0] == pytest.approx(-1e-6 / math.sqrt(1e-4), rel=1e-3)  # eps inside: as if the variance were 1e-4
    assert steps[1] == pytest.approx(-1e-6 / (math.sqrt(0.0475e-12) + 1e-4), rel=1e-6)
    assert steps[1] / steps[0] > 99


def test_rmsprop_graves_survives_a_constant_gradient():
    """n - m^2 is then 0 in the limit, and below it by rounding."""
    weight = nn.Parameter(torch.zeros(1))
    optimizer = RMSpropGraves([weight], momentum=0.0)
    for _ in range(2000):
        weight.grad = torch.full((1,), 1000.0)
        optimizer.step()
    assert math.isfinite(float(weight.detach()))
    assert float(weight.detach()) < -0.1


def test_rmsprop_graves_leaves_weights_without_a_gradient_and_decays_the_others():
    with_gradient, without = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizer = RMSpropGraves([with_gradient, without], weight_decay=0.5)
    with_gradient.grad = torch.tensor([0.25])
    optimizer.step()
    g = 0.25 + 0.5 * 1.0
    step = 1e-4 * g / math.sqrt(0.05 * g * g - (0.05 * g) ** 2 + 1e-4)
    assert float(with_gradient.detach()) == pytest.approx(1 - step, rel=1e-6)
    assert float(without.detach()) == 1.0
    assert list(optimizer.state_dict()["state"]) == [0]


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_state_put_back_goes_on_with_the_same_bits(name):
    make, arguments = OPTIMIZERS[name]

    def walk(weight: nn.Parameter, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            weight.grad = torch.randn(7, 5, generator=torch.Generator().manual_seed(step))
            optimizer.step()

    config = OptimizerConfig(name=name, weight_decay=0.01)
    whole, broken = nn.Parameter(torch.ones(7, 5)), nn.Parameter(torch.ones(7, 5))
    walk(whole, make([whole], lr=0.01, **arguments(config)), range(6))
    first = make([broken], lr=0.01, **arguments(config))
    walk(broken, first, range(3))
    second = make([broken], lr=0.01, **arguments(config))
    second.load_state_dict(first.state_dict())
    walk(broken, second, range(3, 6))
    assert torch.equal(whole, broken)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("adam", lambda w: torch.optim.Adam(w, lr=0.01, weight_decay=0.1, foreach=False, fused=False)),
        ("adamw", lambda w: torch.optim.AdamW(w, lr=0.01, weight_decay=0.1, foreach=False, fused=False)),
        ("sgd", lambda w: torch.optim.SGD(w, lr=0.01, momentum=0.9, weight_decay=0.1, foreach=False, fused=False)),
    ],
)
def test_fused_steps_are_those_of_the_plain_loop(name, plain):
    make, arguments = OPTIMIZERS[name]
    weights = [nn.Parameter(torch.linspace(-1, 1, 1001)) for _ in range(2)]
    ours = make([weights[0]], lr=0.01, **arguments(OptimizerConfig(name=name, weight_decay=0.1)))
    assert ours.defaults["fused"] is True
    theirs = plain([weights[1]])
    for step in range(20):
        for weight, optimizer in zip(weights, (ours, theirs), strict=True):
            weight.grad = torch.randn(1001, generator=torch.Generator().manual_seed(step))
            optimizer.step()
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=1e-5)


def test_values_that_are_not_given_are_the_optimisers_own():
    rmsprop_graves, plain = OptimizerConfig(name="rmsprop_graves"), OptimizerConfig(name="rmsprop")
    assert (rmsprop_graves.decay, rmsprop_graves.momentum, rmsprop_graves.epsilon) == (0.95, 0.9, 1e-4)
    assert (plain.decay, plain.epsilon) == (0.99, 1e-8)
    assert OptimizerConfig(name="rmsprop_graves", epsilon=1e-6).epsilon == 1e-6
