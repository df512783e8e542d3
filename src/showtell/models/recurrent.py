"""Recurrent cells over rows, (B, N, ...): torch's LSTM, and the GRU with its reset gate in either place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.models.packed import linear


class LstmCell(nn.LSTMCell):
    """torch's LSTM cell, whose input may come in parts: what an image gives to the gates is computed once for all.

    i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b),  c' = f * c + i * g,  h' = o * tanh(c')
    """

    def gates_of(self, part: Tensor, first: int = 0) -> Tensor:
        """What a part of the input gives to the gates.

        Args:
            part: (..., P), the places first to first + P of the input.
            first: where in the input the part begins.

        Returns:
            (..., 4 H), in torch's order i, f, g, o; biases are added in `forward`.
        """
        return linear(part, self.weight_ih, first=first)

    def forward(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """One step.

        Args:
            gates: (B, N, 4 H), the sum of `gates_of` over all parts of the input.
            hidden: (B, N, H).
            cell: (B, N, H).

        Returns:
            The new hidden and cell.
        """
        gates = gates + linear(hidden, self.weight_hh, self.bias_ih + self.bias_hh)
        i, f, g, o = gates.chunk(4, -1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(cell), cell

    def initialise(self) -> None:
        """Xavier uniform; the recurrent matrix orthogonal, gate by gate; biases 0, of the forget gate 1."""
        nn.init.xavier_uniform_(self.weight_ih)
        for gate in self.weight_hh.data.chunk(4):
            nn.init.orthogonal_(gate)
        nn.init.zeros_(self.bias_ih)
        nn.init.zeros_(self.bias_hh)
        with torch.no_grad():
            self.bias_ih.chunk(4)[1].fill_(1.0)


class GruCell(nn.GRUCell):
    """The GRU with its reset gate in front of the product, as papers/004 §2.1 (and Cho et al., 2014) has it.

    r, u = sigmoid(W x + U h + b),  n = tanh(W x + U (r * h) + b),  h' = u * n + (1 - u) * h

    torch's own cell (`reset_after=True`) has tanh(W x + b + r * (U h + b')) instead, which needs one matrix product
    with h and not two, and calls u what is 1 - u here. The two are different functions. Weights lie as in torch:
    rows of r, of the update gate, of n.
    """

    def __init__(self, input_size: int, hidden_size: int, *, reset_after: bool = False) -> None:
        super().__init__(input_size, hidden_size)
        self.reset_after = reset_after

    def forward(self, inputs: Tensor, hidden: Tensor) -> Tensor:  # type: ignore[override]
        """One step: (B, N, I) and (B, N, H) to the new hidden, (B, N, H)."""
        if self.reset_after:
            return super().forward(inputs.flatten(0, -2), hidden.flatten(0, -2)).view_as(hidden)
        size = self.hidden_size
        of_input = linear(inputs, self.weight_ih, self.bias_ih + self.bias_hh)
        both = of_input[..., : 2 * size] + F.linear(hidden, self.weight_hh[: 2 * size])
        reset, update = torch.sigmoid(both).chunk(2, -1)
        candidate = torch.tanh(of_input[..., 2 * size :] + F.linear(reset * hidden, self.weight_hh[2 * size :]))
        return update * candidate + (1 - update) * hidden

    def initialise(self) -> None:
        """Xavier uniform; the recurrent matrix orthogonal, gate by gate; biases 0."""
        nn.init.xavier_uniform_(self.weight_ih)
        for gate in self.weight_hh.data.chunk(3):
            nn.init.orthogonal_(gate)
        nn.init.zeros_(self.bias_ih)
        nn.init.zeros_(self.bias_hh)
