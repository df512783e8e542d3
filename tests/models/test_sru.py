"""The Simple Recurrent Unit against its formulas, and its two forms against each other."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.models.sru import Sru, SruLayer


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
