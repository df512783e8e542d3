"""The Simple Recurrent Unit against its formulas, and its two forms against each other."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.models.sru import Sru, SruLayer


def test_a_step_is_the_formula_of_the_paper():
    """All sizes 1: W_f = 2, W_r = -1, W = 3, W_h = 0.5, b_f = 0.25, b_r = -0.5, x = 0.8, c = -0.4."""
    layer = SruLayer(1, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0], [-1.0], [3.0], [0.5]]))
        layer.bias.copy_(torch.tensor([0.25, -0.5]))
    hidden, cell = layer.step(layer.project_input(torch.full((1, 1, 1), 0.8)), torch.full((1, 1, 1), -0.4))
    forget = 1 / (1 + math.exp(-(2 * 0.8 + 0.25)))
    reset = 1 / (1 + math.exp(-(-0.8 - 0.5)))
    expected = forget * -0.4 + (1 - forget) * 2.4
    assert cell.item() == pytest.approx(expected, abs=1e-6)
    assert hidden.item() == pytest.approx(reset * math.tanh(expected) + (1 - reset) * 0.4, abs=1e-6)


@settings(deadline=None)
@given(st.integers(1, 19), st.integers(1, 3), st.booleans(), st.integers(0, 1000))
def test_all_steps_at_once_are_the_steps_one_by_one(steps, layers, highway, seed):
    torch.manual_seed(seed)
    sru = Sru(3, 4, layers=layers, highway=highway).double()
    inputs = torch.randn(2, 3, steps, 3, dtype=torch.float64)
    products = sru.first.project_input(inputs)
    cells = tuple(cell.expand(-1, 3, -1) for cell in sru.start(inputs))
    singly = []
    for step in range(steps):
        hidden, cells = sru.step(products[:, :, step], cells)
        singly.append(hidden)
    torch.testing.assert_close(sru(products), torch.stack(singly, 2))


def test_matrices_begin_orthogonal():
    layer = SruLayer(6, 4)
    for matrix in layer.weight.split(4):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(4), atol=1e-6, rtol=0)
