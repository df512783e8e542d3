from __future__ import annotations

import math

import pytest
import torch

from showtell.models.recurrent import GruCell


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_reset_gate_acts_in_front_of_the_product():
    """The formula of Boustany and Sarfati, §2.1, one number at a time."""
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
