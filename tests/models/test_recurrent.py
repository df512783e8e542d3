from __future__ import annotations

import math

import pytest
import torch

from showtell.models.recurrent import GruCell, LstmCell, MaxoutLstmCell, RnnCell, initialise_cell


def rows(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_a_forget_gate_begins_open():
    cell = LstmCell(3, 2)
    initialise_cell(cell)
    zeros = torch.zeros(1, 1, 2)
    _, memory = cell(cell.project_input(torch.zeros(1, 1, 3)), zeros, torch.ones(1, 1, 2))
    assert memory.tolist() == [[[pytest.approx(1 / (1 + math.exp(-1)))] * 2]]


def test_the_maxout_cell_is_its_formula():
    torch.manual_seed(0)
    cell = MaxoutLstmCell(5, 4)
    x, hidden, memory = rows(2, 3, 5, seed=1), rows(2, 3, 4, seed=2), rows(2, 3, 4, seed=3)
    i, f, o, first, second = (
        x @ w.T + hidden @ u.T + b + c
        for w, u, b, c in zip(
            *(part.chunk(5) for part in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)), strict=True
        )
    )
    new_memory = f.sigmoid() * memory + i.sigmoid() * torch.where(first > second, first, second)
    ours = cell(cell.project_input(x), hidden, memory)
    torch.testing.assert_close(ours, (o.sigmoid() * new_memory.tanh(), new_memory))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_reset_gate_acts_in_front_of_the_product():
    """The formula of papers/004 §2.1, one number at a time."""
    torch.manual_seed(0)
    cell = GruCell(2, 3)
    x, a = [0.5, -1.0], [0.2, -0.7, 0.9]
    w, u = cell.weight_ih.tolist(), cell.weight_hh.tolist()
    b = (cell.bias_ih + cell.bias_hh).tolist()

    def line(row: int, hidden: list[float]) -> float:
        return b[row] + sum(w[row][j] * x[j] for j in range(2)) + sum(u[row][j] * hidden[j] for j in range(3))

    reset = [sigmoid(line(row, a)) for row in range(3)]
    update = [sigmoid(line(3 + row, a)) for row in range(3)]
    guarded = [gate * value for gate, value in zip(reset, a, strict=True)]
    candidate = [math.tanh(line(6 + row, guarded)) for row in range(3)]
    expected = [z * n + (1 - z) * old for z, n, old in zip(update, candidate, a, strict=True)]
    hidden = cell(cell.project_input(torch.tensor([[x]])), torch.tensor([[a]]))
    assert hidden[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_plain_rnn_is_the_formula():
    """papers/004 §1.3, one number at a time."""
    torch.manual_seed(0)
    cell, x, a = RnnCell(2, 3), [0.5, -1.0], [0.2, -0.7, 0.9]
    w, u, b = cell.weight_ih.tolist(), cell.weight_hh.tolist(), (cell.bias_ih + cell.bias_hh).tolist()
    expected = [
        math.tanh(sum(w[row][j] * x[j] for j in range(2)) + sum(u[row][j] * a[j] for j in range(3)) + b[row])
        for row in range(3)
    ]
    hidden = cell(cell.project_input(torch.tensor([[x]])), torch.tensor([[a]]))
    assert hidden[0, 0].tolist() == pytest.approx(expected, abs=1e-6)
