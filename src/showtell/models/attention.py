"""Additive attention, the part that most of the papers share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from showtell.models.linear import GradientAccumulator, Linear, shared

# Numbers in a tile of rows x regions x attention units. A tile should stay in the cache of the cores while it is
# summed, squashed and multiplied; a smaller one costs more calls than it saves.
TILE = 2**20


def masked_softmax(scores: Tensor, is_region: Tensor) -> Tensor:
    """Softmax over the regions that exist.

    Args:
        scores: (B, N, R).
        is_region: (B, R) bool.

    Returns:
        (B, N, R) weights; 0 where there is no region.
    """
    return scores.masked_fill(~is_region.unsqueeze(1), float("-inf")).softmax(-1)


def masked_mean(vectors: Tensor, is_region: Tensor) -> Tensor:
    """The mean of the vectors that exist: (B, R, D) and (B, R) to (B, D)."""
    present = is_region.unsqueeze(1).to(vectors.dtype)  # (B, 1, R)
    return (present @ vectors).squeeze(1) / present.sum(-1)


@dataclass(frozen=True)
class Activation:
    """f(x) = factor s(inner x) + shift, by a function s that is fast, with f'(x) = steepness slope(s(inner x))."""

    plain: Callable[[Tensor], Tensor]  # f
    squash: Callable[[Tensor], Tensor]  # s, in place
    slope: Callable[[Tensor], Tensor]  # in place
    inner: float = 1.0
    factor: float = 1.0
    shift: float = 0.0
    steepness: float = 1.0


# tanh(x) = 2 sigmoid(2x) - 1, and torch's sigmoid is six times as fast as its tanh on a CPU. The error is that of
# float32 numbers near 1 (6e-8), as it is for the tanh of all but small x.
TANH = Activation(
    torch.tanh, torch.sigmoid_, lambda s: s.addcmul_(s, s, value=-1), inner=2.0, factor=2.0, shift=-1.0, steepness=4.0
)
RELU = Activation(torch.relu, torch.relu_, torch.Tensor.sign_)
ACTIVATIONS = {"tanh": TANH, "relu": RELU}


def plain_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = TANH) -> Tensor:
    """e_i = w . f(p_i + q) as it is written. Its tensor of (B, N, R, A) goes through memory several times.

    Args:
        projected: p, (B, R, A).
        query: q, (B, N, A).
        weight: w, (A) or (1, A).
        activation: f.

    Returns:
        (B, N, R).
    """
    return activation.plain(projected.unsqueeze(1) + query.unsqueeze(2)) @ weight.view(-1)


def _tiles(images: int, rows: int, size: int) -> Iterator[tuple[slice, slice]]:
    """Images and rows of each tile: several images, or some rows of one. `size`: numbers per row."""
    images_each = max(1, TILE // (rows * size))
    rows_each = rows if images_each > 1 else max(1, TILE // size)
    for image in range(0, images, images_each):
        for row in range(0, rows, rows_each):
            yield slice(image, image + images_each), slice(row, row + rows_each)


def _squash(activation: Activation, projected: Tensor, query: Tensor, room: Tensor) -> Tensor:
    """s(inner (p + q)) of a tile, (b, n, R, A), written into `room`."""
    shape = (len(query), query.shape[1], *projected.shape[1:])
    tile = room[: shape[0] * shape[1] * shape[2] * shape[3]].view(shape)
    inner = activation.inner
    torch.add((inner * query).unsqueeze(2), projected.unsqueeze(1), alpha=inner, out=tile)
    return activation.squash(tile)


class _Sums(GradientAccumulator):
    """What the steps of a walk add to the gradients of p and w, in one place for all of them."""

    def clear(self) -> None:
        self.of_p: Tensor | None = None
        self.of_w: Tensor | None = None

    def add(self) -> tuple[Tensor, Tensor]:
        """The sums so far, to be added to: dp / w, (B, R, A), and dw, (A)."""
        if self.of_p is None or self.of_w is None:
            projected, weight = self.shared
            self.of_p, self.of_w = torch.zeros_like(_wide(projected)), torch.zeros_like(_wide(weight).view(-1))
        return self.of_p, self.of_w

    def collect(self) -> tuple[Tensor | None, ...]:
        """dp and dw."""
        projected, weight = self.shared
        of_p, of_w = self.add()
        of_p *= _wide(weight).view(-1)
        return of_p.to(projected.dtype), of_w.to(weight.dtype).view_as(weight)


class TiledScores(torch.autograd.Function):
    """`plain_scores` tile by tile, in the cache. The backward pass squashes again instead of keeping (B, N, R, A).

    For gradients g of the scores:

        dw = sum_nr g f(p + q),   dp_r = w * sum_n g f'(p + q),   dq_n = w * sum_r g f'(p + q)

    In a walk dp and dw are summed over its steps in place. Numbers of 16 bits are computed with in float32.

    Products of a tile with vectors are batches of small products, because torch hands those out to threads by row, as
    it does sums and sigmoids: each core goes on with the part of the tile that its own cache holds. A product with a
    vector (`mv`) runs on one core, and where two cores are far apart it takes longer to bring the other's half over
    than to do everything else (docs/lab_notes.md).
    """

    @staticmethod
    def forward(
        ctx: Any,
        projected: Tensor,
        query: Tensor,
        weight: Tensor,
        note: _Sums | None = None,
        activation: Activation = TANH,
    ) -> Tensor:
        """(B, R, A), (B, N, A) and A numbers to (B, N, R)."""
        ctx.save_for_backward(projected, query, weight)
        ctx.note, ctx.activation = note, activation
        (images, rows, _), (regions, size) = query.shape, projected.shape[1:]
        p, q, w = _wide(projected), _wide(query), _wide(weight).view(-1)
        scores = p.new_empty(images, rows, regions)
        room = _room(images, rows, regions * size, p.dtype)
        for image, row in _tiles(images, rows, regions * size):
            tile = _squash(activation, p[image], q[image, row], room)
            each = tile.flatten(0, 1)  # (b n, R, A)
            summed = torch.bmm(w.view(1, 1, -1).expand(len(each), 1, size), each.mT)
            scores[image, row] = summed.view(tile.shape[:-1])
        scores.mul_(activation.factor).add_(activation.shift * w.sum())
        return scores.to(projected.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of projected, query and weight."""
        projected, query, weight = ctx.saved_tensors
        (images, rows, _), (regions, size) = query.shape, projected.shape[1:]
        p, q, w = _wide(projected), _wide(query), _wide(weight).view(-1)
        g = _wide(gradient).contiguous()
        activation: Activation = ctx.activation
        note = _Sums(projected, weight) if ctx.note is None else ctx.note
        note.open()
        of_p, of_w = note.add()
        of_w += activation.shift * g.sum()
        of_q = torch.empty_like(q)
        room = _room(images, rows, regions * size, p.dtype)
        for image, row in _tiles(images, rows, regions * size):
            tile = _squash(activation, p[image], q[image, row], room)
            here = g[image, row]  # (b, n, R)
            of_w.add_(torch.matmul(here.unsqueeze(2), tile).sum((0, 1, 2)), alpha=activation.factor)
            activation.slope(tile)
            of_q[image, row] = torch.matmul(here.unsqueeze(2), tile).squeeze(2)
            for n in range(tile.shape[1]):
                of_p[image].addcmul_(tile[:, n], here[:, n].unsqueeze(-1), value=activation.steepness)
        of_q = of_q.mul_(activation.steepness * w).to(query.dtype)
        if ctx.note is not None:
            return None, of_q, None, None, None
        gradient_of_p, gradient_of_w = note.collect()
        return gradient_of_p, of_q, gradient_of_w, None, None


def tiled_scores(projected: Tensor, query: Tensor, weight: Tensor, activation: Activation = TANH) -> Tensor:
    """`plain_scores` in tiles; in a walk the gradients of p and w are gathered."""
    gathered = shared(_Sums, projected, weight)
    if gathered is None:
        return TiledScores.apply(projected, query, weight, None, activation)
    note, (p, w) = gathered
    return TiledScores.apply(p, query, w, note, activation)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


_kept = threading.local()


def _room(images: int, rows: int, size: int, dtype: torch.dtype) -> Tensor:
    """Room for the largest tile, kept from call to call: otherwise the system hands out fresh pages at every word."""
    numbers = max(size, min(TILE, images * rows * size))
    room: Tensor | None = getattr(_kept, "room", None)
    if room is None or room.dtype != dtype or len(room) < numbers:
        with torch.inference_mode(False):
            room = _kept.room = torch.empty(numbers, dtype=dtype)
    return room


class AdditiveAttention(nn.Module):
    """e_i = w . f(W_a a_i + W_h h + b), alpha = softmax(e) (papers/003 §3.1.2, f_att as one hidden layer).

    W_a a_i + b does not depend on the words: `project` computes it once per image. f is tanh, or ReLU as in
    papers/000 §3.5.
    """

    def __init__(
        self,
        *,
        feature_size: int,
        query_size: int,
        attention_size: int,
        bias: bool = True,
        activation: Literal["tanh", "relu"] = "tanh",
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.of_features = Linear(feature_size, attention_size, bias=bias)
        self.of_query = Linear(query_size, attention_size, bias=False)
        self.score = nn.Linear(attention_size, 1, bias=False)

    def project(self, vectors: Tensor) -> Tensor:
        """W_a a + b: (B, R, D) to (B, R, A)."""
        return self.of_features(vectors)

    def scores(self, query: Tensor, projected: Tensor) -> Tensor:
        """e: (B, N, H) and (B, R, A) to (B, N, R)."""
        form = tiled_scores if projected.device.type == "cpu" else plain_scores
        return form(projected, self.of_query(query), self.score.weight, self.activation)

    def forward(self, query: Tensor, projected: Tensor, is_region: Tensor) -> Tensor:
        """The weights alpha.

        Args:
            query: (B, N, H), what each row asks with.
            projected: (B, R, A) from `project`.
            is_region: (B, R) bool.

        Returns:
            (B, N, R).
        """
        return masked_softmax(self.scores(query, projected), is_region)
