"""Recurrent cells over rows, (B, N, ...): LSTM, LSTM with maxout, GRU with its reset gate before or after the product,
and plain RNN."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.models.kernels import linear


class LstmCell(nn.LSTMCell):
    """torch's LSTM cell, whose input may come in parts: those of images and known words are computed once.

    i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b),  c' = f * c + i * g,  h' = o * tanh(c')
    """

    def project_input(self, part: Tensor, offset: int = 0) -> Tensor:
        """The gates i, f, g, o, (..., 4 H), of a part of the input, (..., P); the part at 0 adds the input's bias."""
        return linear(part, self.weight_ih, None if offset else self.bias_ih, offset=offset)

    def forward(self, gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """One step: gates (B, N, 4 H), summed over the parts of the input, to the new hidden and cell, (B, N, H)."""
        i, f, g, o = (gates + linear(hidden, self.weight_hh, self.bias_hh)).chunk(4, -1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # Xu et al. 2015, §3.1.2: c_t
        return torch.sigmoid(o) * torch.tanh(cell), cell  # Xu et al. 2015, §3.1.2: h_t


class MaxoutLstmCell(nn.RNNCellBase):
    """An LSTM cell whose candidate is the greater of two, without tanh (Rennie et al. 2017): weights i, f, o, g_1, g_2.

    g = max(W_1 x + U_1 h + b_1, W_2 x + U_2 h + b_2),  c' = f * c + i * g,  h' = o * tanh(c')
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, bias=True, num_chunks=5)

    def project_input(self, inputs: Tensor) -> Tensor:
        """W x and its half of b: (..., I) to (..., 5 H)."""
        return linear(inputs, self.weight_ih, self.bias_ih)

    def forward(
        self, gates: Tensor, hidden: Tensor, cell: Tensor, candidates: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step: gates, (B, N, 5 H), and what is added to the candidates, (B, N, 2 H), to new hidden and cell."""
        size = self.hidden_size
        gates = gates + linear(hidden, self.weight_hh, self.bias_hh)
        i, f, o = torch.sigmoid(gates[..., : 3 * size]).chunk(3, -1)
        both = gates[..., 3 * size :]
        first, second = (both if candidates is None else both + candidates).chunk(2, -1)
        cell = f * cell + i * torch.maximum(first, second)
        return o * torch.tanh(cell), cell


class GruCell(nn.GRUCell):
    """The GRU with its reset gate in front of the product, as Boustany and Sarfati, §2.1 (and Cho et al., 2014) has it.

    r, u = sigmoid(W x + U h + b),  n = tanh(W x + U (r * h) + b),  h' = u * n + (1 - u) * h

    torch's (`reset_after`) is another function, tanh(W x + b + r * (U h + b')), with one product of h instead of two,
    and its u is 1 - u here. Weights are ordered as in torch: r, u, n.
    """

    def __init__(self, input_size: int, hidden_size: int, *, reset_after: bool = False) -> None:
        super().__init__(input_size, hidden_size)
        self.reset_after = reset_after

    def project_input(self, inputs: Tensor) -> Tensor:
        """Project the input to the gates and the candidate: (..., I) to (..., 3 H), in the order r, u, n."""
        return linear(inputs, self.weight_ih, self.bias_ih if self.reset_after else self.bias_ih + self.bias_hh)

    def forward(self, gates: Tensor, hidden: Tensor) -> Tensor:  # type: ignore[override]
        """One step: `project_input` the input, (B, N, 3 H), and (B, N, H) to the new hidden, (B, N, H)."""
        size = self.hidden_size
        if self.reset_after:
            of_hidden = linear(hidden, self.weight_hh, self.bias_hh)
            reset, keep = torch.sigmoid(gates[..., : 2 * size] + of_hidden[..., : 2 * size]).chunk(2, -1)
            candidate = torch.tanh(gates[..., 2 * size :] + reset * of_hidden[..., 2 * size :])
            return keep * hidden + (1 - keep) * candidate
        both = gates[..., : 2 * size] + F.linear(hidden, self.weight_hh[: 2 * size])
        reset, update = torch.sigmoid(both).chunk(2, -1)  # Boustany and Sarfati, §2.1: Gamma_r, Gamma_u
        # Boustany and Sarfati, §2.1: candidate
        candidate = torch.tanh(gates[..., 2 * size :] + F.linear(reset * hidden, self.weight_hh[2 * size :]))
        return update * candidate + (1 - update) * hidden  # Boustany and Sarfati, §2.1: c_t


class RnnCell(nn.RNNCell):
    """torch's RNN cell, a' = tanh(W_ax x + W_aa a + b) (Boustany and Sarfati, §1.3); b is kept as a sum of two."""

    def project_input(self, inputs: Tensor) -> Tensor:
        """W_ax x and its half of b: (..., I) to (..., H)."""
        return linear(inputs, self.weight_ih, self.bias_ih)

    def forward(self, projected: Tensor, hidden: Tensor) -> Tensor:  # type: ignore[override]
        """One step: `project_input` of the input, (B, N, H), and (B, N, H) to the new hidden, (B, N, H)."""
        return torch.tanh(projected + linear(hidden, self.weight_hh, self.bias_hh))  # Boustany and Sarfati, §1.3: a_t


Cell = LstmCell | MaxoutLstmCell | GruCell | RnnCell


def initialise(decoder: nn.Module, cells: Iterable[Cell]) -> None:
    """Matrices Xavier uniform, recurrent ones orthogonal by gate, `embedding` normal (std 0.1), biases 0, forget 1."""
    for name, parameter in decoder.named_parameters():
        if name == "embedding.weight":
            nn.init.normal_(parameter, std=0.1)
        elif parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
    for cell in cells:
        nn.init.xavier_uniform_(cell.weight_ih)
        for gate in torch.split(cell.weight_hh.data, cell.hidden_size):
            nn.init.orthogonal_(gate)
        if isinstance(cell, LstmCell | MaxoutLstmCell):
            nn.init.ones_(cell.bias_ih.data[cell.hidden_size : 2 * cell.hidden_size])  # forget gate
