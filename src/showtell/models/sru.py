"""The Simple Recurrent Unit: Lei, Zhang and Artzi, 2017, as in HACap §3.4; one step or all in parallel.

    x~_t = W x_t
    f_t = sigmoid(W_f x_t + b_f),  r_t = sigmoid(W_r x_t + b_r)          forget gate and reset gate
    c_t = f_t * c_{t-1} + (1 - f_t) * x~_t                               the memory cell
    h_t = r_t * tanh(c_t) + (1 - r_t) * W_h x_t                          the highway

No gate depends on h_{t-1}, so that everything but c_t is one matrix product over all steps, and c_t is an elementwise
linear recurrence. Two steps of it compose to one of the same form,

    c_t = f_t c_{t-1} + u_t,  c_{t-1} = f_{t-1} c_{t-2} + u_{t-1}   ->   c_t = f_t f_{t-1} c_{t-2} + (f_t u_{t-1} + u_t)

and so `forward` needs log2(T) rounds over the whole sequence where `step` needs T (a parallel scan by doubling: Hillis
and Steele, 1986).

Where this differs from the papers, or they are silent:
 1. The highway has a matrix W_h of its own in all layers, as HACap writes it; the SRU's authors pass x_t on
    unchanged where the sizes agree. `highway=False` leaves the second term of h_t out (HACap §5.4 makes it
    responsible for attention that moves segment by segment).
 2. g is tanh; HACap leaves it open.
 3. Each matrix is initialised orthogonal (HACap §4.4), the biases with 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from showtell.models.kernels import linear


class SruLayer(nn.Module):
    """One layer over rows, (B, N, ...)."""

    def __init__(self, input_size: int, hidden_size: int, *, highway: bool = True) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.highway = input_size, hidden_size, highway
        self.weight = nn.Parameter(torch.empty((4 if highway else 3) * hidden_size, input_size))  # W_f, W_r, W, W_h
        self.bias = nn.Parameter(torch.empty(2 * hidden_size))  # b_f, b_r
        self.initialise()

    def initialise(self) -> None:
        """Orthogonal, matrix by matrix; biases 0."""
        for matrix in torch.split(self.weight.data, self.hidden_size):
            nn.init.orthogonal_(matrix)
        nn.init.zeros_(self.bias)

    def project_input(self, part: Tensor, offset: int = 0) -> Tensor:
        """Terms of W_f x, W_r x, W x, W_h x, (..., 4 H), of x's part at `offset`, (..., P); 3 H without highway."""
        return linear(part, self.weight, offset=offset)  # HACap §3.4: x~_t

    def step(self, products: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """One step: the sum of `project_input` over x's parts, (B, N, 4 H), and c to the new h and c, (B, N, H)."""
        forget, reset, new, *highway = self._gates(products)
        cell = forget * cell + (1 - forget) * new  # HACap §3.4: c_t
        return self._hidden(reset, cell, *highway), cell

    def forward(self, products: Tensor) -> Tensor:
        """All steps of a known sequence from the start: (B, N, T, 4 H) to the hidden after each, (B, N, T, H)."""
        forget, reset, new, *highway = self._gates(products)
        return self._hidden(reset, scan(forget, (1 - forget) * new), *highway)

    def _gates(self, products: Tensor) -> tuple[Tensor, ...]:
        size = self.hidden_size
        gates = torch.sigmoid(products[..., : 2 * size] + self.bias)  # HACap §3.4: f_t and r_t
        forget, reset = torch.split(gates, size, -1)
        return forget, reset, *torch.split(products[..., 2 * size :], size, -1)

    @staticmethod
    def _hidden(reset: Tensor, cell: Tensor, highway: Tensor | None = None) -> Tensor:
        hidden = reset * torch.tanh(cell)
        return hidden if highway is None else hidden + (1 - reset) * highway  # HACap §3.4: h_t


class Sru(nn.Module):
    """A stack of SRU layers."""

    layers: Sequence[SruLayer]  # a ModuleList

    def __init__(self, input_size: int, hidden_size: int, *, layers: int = 1, highway: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        sizes = [input_size] + [hidden_size] * (layers - 1)
        stack = (SruLayer(size, hidden_size, highway=highway) for size in sizes)
        self.layers = nn.ModuleList(stack)  # type: ignore[assignment]

    @property
    def first(self) -> SruLayer:
        """The layer that reads the input."""
        return self.layers[0]

    def start(self, like: Tensor) -> tuple[Tensor, ...]:
        """The zero cells before the first step: (B, 1, H) for each layer, with B, device and dtype of `like`."""
        return tuple(like.new_zeros(len(like), 1, self.hidden_size) for _ in self.layers)

    def step(self, products: Tensor, cells: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One step: the input's products for the first layer, (B, N, 4 H), to the last hidden and the new cells."""
        after = []
        hidden = products
        for number, (layer, cell) in enumerate(zip(self.layers, cells, strict=True)):
            hidden, cell = layer.step(hidden if number == 0 else layer.project_input(hidden), cell)
            after.append(cell)
        return hidden, tuple(after)

    def forward(self, products: Tensor) -> Tensor:
        """All steps of a known sequence from the start: (B, N, T, 4 H) to the last layer's hidden, (B, N, T, H)."""
        hidden = products
        for number, layer in enumerate(self.layers):
            hidden = layer(hidden if number == 0 else layer.project_input(hidden))
        return hidden


def scan(factor: Tensor, term: Tensor) -> Tensor:
    """c_t = factor_t c_{t-1} + term_t for all t, from c_0 = 0: (..., T, H) each."""
    stride = 1
    while stride < term.shape[-2]:
        joined = term[..., stride:, :] + factor[..., stride:, :] * term[..., :-stride, :]
        factor = torch.cat([factor[..., :stride, :], factor[..., stride:, :] * factor[..., :-stride, :]], -2)
        term = torch.cat([term[..., :stride, :], joined], -2)
        stride *= 2
    return term
