"""The scores of additive attention, compiled or in tiles that stay in the cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from showtell.models.kernels import compiled, plain
from showtell.models.kernels.accumulation import GradientAccumulator, accumulator_for
from showtell.models.kernels.plain import TANH, Activation
from showtell.models.kernels.switch import is_plain

# Numbers in a tile of rows x regions x attention units. A tile should stay in the cache of the cores while it is
# summed, squashed and multiplied; a smaller one costs more calls than it saves.
TILE = 2**20


def _tiles(images: int, rows: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Images and rows of each tile: several images, or some rows of one. `size`: numbers per row."""
    images_each = max(1, TILE // (rows * size))
    rows_each = rows if images_each > 1 else max(1, TILE // size)
    for image in range(0, images, images_each):
        for row in range(0, rows, rows_each):
            yield slice(image, image + images_each), slice(row, row + rows_each)


def _squash(activation: Activation, projected: Tensor, query: Tensor, buffer: Tensor) -> Tensor:
    """s(inner (p + q)) of a tile, (b, n, R, A), written into `buffer`."""
    shape = (len(query), query.shape[1], *projected.shape[1:])
    tile = buffer[: shape[0] * shape[1] * shape[2] * shape[3]].view(shape)
    inner = activation.inner
    torch.add((inner * query).unsqueeze(2), projected.unsqueeze(1), alpha=inner, out=tile)
    return activation.squash(tile)


class _ScoreGradients(GradientAccumulator):
    """The sums, over the steps of a loop, of the gradients of p and w."""

    def clear(self) -> None:
        self.grad_p: Tensor | None = None
        self.grad_w: Tensor | None = None

    def running_sums(self) -> tuple[Tensor, Tensor]:
        """The sums so far, to be added to: dp / w, (B, R, A), and dw, (A)."""
        if self.grad_p is None or self.grad_w is None:
            projected, weight = map(_wide, self.tensors)
            self.grad_p = torch.zeros_like(projected, memory_format=torch.contiguous_format)
            self.grad_w = torch.zeros_like(weight.view(-1))
        return self.grad_p, self.grad_w

    def gradients(self) -> tuple[Tensor | None, ...]:
        """dp and dw."""
        projected, weight = self.tensors
        grad_p, grad_w = self.running_sums()
        grad_p *= _wide(weight).view(-1)
        return grad_p.to(projected.dtype), grad_w.to(weight.dtype).view_as(weight)


class TiledScores(torch.autograd.Function):
    """`plain.additive_scores` compiled, or tile by tile. The backward pass recomputes the (B, N, R, A) activations.

    For gradients g of the scores:

        dw = sum_nr g f(p + q),   dp_r = w * sum_n g f'(p + q),   dq_n = w * sum_r g f'(p + q)

    In a loop over time dp and dw are summed over its steps in place. 16-bit tensors are computed in float32.

    Products of a tile with vectors are batched small products, because torch distributes those over threads by row, as
    it does sums and sigmoids: each core continues with the part of the tile in its own cache. A product with a
    vector (`mv`) runs on one core, and if two cores do not share a cache, moving the other's half takes longer than
    everything else (docs/lab_notes.md).
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        query: Tensor,
        weight: Tensor,
        accumulator: _ScoreGradients | None = None,
        activation: Activation = TANH,
    ) -> Tensor:
        """(B, R, A), (B, N, A) and A numbers to (B, N, R)."""
        ctx.save_for_backward(projected, query, weight)
        ctx.accumulator, ctx.activation = accumulator, activation
        p, q, w = _wide(projected), _wide(query), _wide(weight).view(-1)
        ctx.is_compiled = compiled.fits(p, q, w)
        scores = compiled.additive_scores if ctx.is_compiled else _scores
        return scores(p, q, w, activation).to(projected.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of projected, query and weight."""
        projected, query, weight = ctx.saved_tensors
        p, q, w = _wide(projected), _wide(query), _wide(weight).view(-1)
        accumulator = _ScoreGradients(projected, weight) if ctx.accumulator is None else ctx.accumulator
        accumulator.begin_step()
        add_gradients = compiled.add_score_gradients if ctx.is_compiled else _add_gradients
        grad_q = add_gradients(p, q, w, _wide(gradient).contiguous(), ctx.activation, *accumulator.running_sums())
        grad_q = grad_q.to(query.dtype)
        if ctx.accumulator is not None:
            return None, grad_q, None, None, None
        grad_projected, grad_weight = accumulator.gradients()
        return grad_projected, grad_q, grad_weight, None, None


def _scores(p: Tensor, q: Tensor, w: Tensor, activation: Activation) -> Tensor:
    """The scores, tile by tile."""
    (images, rows, _), (regions, size) = q.shape, p.shape[1:]
    scores = p.new_empty(images, rows, regions)
    buffer = _buffer(images, rows, regions * size, p.dtype)
    for image, row in _tiles(images, rows, regions * size):
        tile = _squash(activation, p[image], q[image, row], buffer)
        each = tile.flatten(0, 1)  # (b n, R, A)
        summed = torch.bmm(w.view(1, 1, -1).expand(len(each), 1, size), each.mT)
        scores[image, row] = summed.view(tile.shape[:-1])
    return scores.mul_(activation.factor).add_(activation.shift * w.sum())


def _add_gradients(
    p: Tensor, q: Tensor, w: Tensor, g: Tensor, activation: Activation, grad_p: Tensor, grad_w: Tensor
) -> Tensor:
    """dq, tile by tile; dp / w and dw are added to the sums."""
    (images, rows, _), (regions, size) = q.shape, p.shape[1:]
    grad_w += activation.shift * g.sum()
    grad_q = torch.empty_like(q)
    buffer = _buffer(images, rows, regions * size, p.dtype)
    for image, row in _tiles(images, rows, regions * size):
        tile = _squash(activation, p[image], q[image, row], buffer)
        here = g[image, row]  # (b, n, R)
        grad_w.add_(torch.matmul(here.unsqueeze(2), tile).sum((0, 1, 2)), alpha=activation.factor)
        activation.slope(tile)
        grad_q[image, row] = torch.matmul(here.unsqueeze(2), tile).squeeze(2)
        for n in range(tile.shape[1]):
            grad_p[image].addcmul_(tile[:, n], here[:, n].unsqueeze(-1), value=activation.steepness)
    return grad_q.mul_(activation.steepness * w)


def additive_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = TANH) -> Tensor:
    """`plain.additive_scores`, in tiles on a CPU; a loop gathers the gradients of p and w."""
    if is_plain() or projected.device.type != "cpu":
        return plain.additive_scores(projected, query, weight, activation)
    gathered = accumulator_for(_ScoreGradients, projected, weight)
    accumulator, (p, w) = gathered or (None, (projected, weight))
    return cast(Tensor, TiledScores.apply(p, query, w, accumulator, activation))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


_buffers = threading.local()


def _buffer(images: int, rows: int, size: int, dtype: torch.dtype) -> Tensor:
    """A buffer for the largest tile, kept between calls: otherwise the system allocates new pages at every word."""
    numbers = max(size, min(TILE, images * rows * size))
    buffer: Tensor | None = getattr(_buffers, "buffer", None)
    if buffer is None or buffer.dtype != dtype or len(buffer) < numbers:
        with torch.inference_mode(False):
            buffer = _buffers.buffer = torch.empty(numbers, dtype=dtype)
    return buffer
