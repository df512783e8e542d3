"""The gates of an LSTM, fused into few passes over memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import compiled, plain
from showtell.models.kernels.switch import is_plain


class FusedGates(torch.autograd.Function):
    """The hidden and cell of an LSTM from its gates, (M, 4 H), and its cell, (M, H).

    With s' = s (1 - s) for a sigmoid and t' = 1 - t^2 for a tanh, and gradients h of the hidden and c of the new cell:

        c += h o tanh(c')',   do = h tanh(c') o',   df = c c_old f',   di = c g i',   dg = c i g',   dc_old = c f
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, recurrent: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """gates + recurrent are the gates before their activations."""
        ctx.is_compiled = compiled.fits(gates, recurrent, cell)
        if ctx.is_compiled:
            cell = cell.expand(*gates.shape[:-1], -1).contiguous()  # the first of a loop may be that of all rows
            hidden, new_cell, activated = compiled.lstm_gates(gates, recurrent.expand_as(gates), cell)
            ctx.save_for_backward(activated, cell, new_cell)
            return hidden, new_cell
        squashed = gates + recurrent
        i, f, g, o = squashed.chunk(4, -1)
        g = g.tanh()
        squashed.sigmoid_()
        new_cell = (f * cell).addcmul_(i, g)
        tanh_cell = new_cell.tanh()
        ctx.save_for_backward(squashed, g, cell, tanh_cell)
        return o * tanh_cell, new_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Tensor, grad_cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of gates, recurrent and cell."""
        if ctx.is_compiled:
            activated, cell, new_cell = ctx.saved_tensors
            grad_gates, grad_old_cell = compiled.lstm_gates_backward(activated, cell, new_cell, grad_hidden, grad_cell)
            return grad_gates, grad_gates, grad_old_cell
        squashed, g, cell, tanh_cell = ctx.saved_tensors
        i, f, _, o = squashed.chunk(4, -1)
        grad_cell = torch.addcmul(grad_cell, grad_hidden * o, 1 - tanh_cell * tanh_cell)
        gradient = (1 - squashed).mul_(squashed)
        grad_i, grad_f, grad_g, grad_o = gradient.chunk(4, -1)
        grad_i.mul_(g).mul_(grad_cell)
        grad_f.mul_(cell).mul_(grad_cell)
        torch.mul(i, grad_cell, out=grad_g).mul_(1 - g * g)
        grad_o.mul_(tanh_cell).mul_(grad_hidden)
        return gradient, gradient, grad_cell.mul_(f)


def lstm_gates(gates: Tensor, recurrent: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The new hidden and cell of an LSTM.

    Args:
        gates: (..., 4 H) the input's part of the gates, in torch's order i, f, g, o.
        recurrent: (..., 4 H) the part of the hidden vector.
        cell: (..., H).
    """
    if is_plain() or not gates.dtype == recurrent.dtype == cell.dtype or torch.compiler.is_compiling():
        return plain.lstm_gates(gates, recurrent, cell)
    return cast("tuple[Tensor, Tensor]", FusedGates.apply(gates, recurrent, cell))
