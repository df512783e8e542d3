"""Graves' RMSprop by hand arithmetic."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

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
