from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from showtell.models.recurrent import GruCell, LstmCell, MaxoutLstmCell, RnnCell, initialise_cell


def rows(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_lstm_is_that_of_torch():
    torch.manual_seed(0)
    cell, reference = LstmCell(5, 4), nn.LSTMCell(5, 4)
    reference.load_state_dict(cell.state_dict())
    inputs, hidden, memory = rows(2, 3, 5, seed=1), rows(2, 3, 4, seed=2), rows(2, 3, 4, seed=3)
    new_hidden, new_memory = cell(cell.project_input(inputs), hidden, memory)
    expected = reference(inputs.flatten(0, 1), (hidden.flatten(0, 1), memory.flatten(0, 1)))
    torch.testing.assert_close(new_hidden.flatten(0, 1), expected[0])
    torch.testing.assert_close(new_memory.flatten(0, 1), expected[1])


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


def test_the_plain_rnn_is_the_formula_and_that_of_torch():
    """papers/004 §1.3, one number at a time, then torch's cell on rows, and its gradient."""
    torch.manual_seed(0)
    cell, x, a = RnnCell(2, 3), [0.5, -1.0], [0.2, -0.7, 0.9]
    w, u, b = cell.weight_ih.tolist(), cell.weight_hh.tolist(), (cell.bias_ih + cell.bias_hh).tolist()
    expected = [
        math.tanh(sum(w[row][j] * x[j] for j in range(2)) + sum(u[row][j] * a[j] for j in range(3)) + b[row])
        for row in range(3)
    ]
    hidden = cell(cell.project_input(torch.tensor([[x]])), torch.tensor([[a]]))
    assert hidden[0, 0].tolist() == pytest.approx(expected, abs=1e-6)

    reference, inputs, before = nn.RNNCell(2, 3), rows(2, 4, 2, seed=1), rows(2, 4, 3, seed=2)
    reference.load_state_dict(cell.state_dict())
    ours, theirs = cell(cell.project_input(inputs), before), reference(inputs.flatten(0, 1), before.flatten(0, 1))
    torch.testing.assert_close(ours.flatten(0, 1), theirs)
    gradients = (torch.autograd.grad(one.square().sum(), one_cell.weight_hh) for one, one_cell in
                 ((ours, cell), (theirs, reference)))  # fmt: skip
    torch.testing.assert_close(*(gradient for (gradient,) in gradients))


def test_the_fast_gru_is_that_of_torch_and_another_function():
    torch.manual_seed(0)
    fast, reference, paper = GruCell(5, 4, reset_after=True), nn.GRUCell(5, 4), GruCell(5, 4)
    reference.load_state_dict(fast.state_dict())
    paper.load_state_dict(fast.state_dict())
    inputs, hidden = rows(2, 3, 5, seed=1), rows(2, 3, 4, seed=2)
    expected = reference(inputs.flatten(0, 1), hidden.flatten(0, 1)).view(2, 3, 4)
    torch.testing.assert_close(fast(fast.project_input(inputs), hidden), expected)
    assert float((paper(paper.project_input(inputs), hidden) - expected).detach().abs().max()) > 0.01
