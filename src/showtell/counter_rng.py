"""Counter-based random numbers: a function of (seed, step, image id), so that resuming and resharding repeat them.

torch's generators return numbers in the order of the calls: the dropout mask of an image then depends on the other
images of its batch and process. Here each number is a hash of where it is used:

    u = mix(key(seed, step, image, call) + sum_j index_j * constant_j) / 2**32

`call` counts the requests within a step, `index_j` is the position along each axis behind the images. In a loop over
time (`timesteps`) it counts those of each word anew. Neither the length of the longest caption of the batch nor the
index of the image in it matters. On counter-based generators: Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ItemT = TypeVar("ItemT")

# Odd 32-bit constants, one per axis behind the images (2**32 over the powers of a root of x**5 = x + 1)
_AXES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)


def key_of(*parts: object) -> int:
    """A 63-bit hash of the parts, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()) >> 1


def _signed(number: int) -> int:
    """The 32-bit pattern of a number as a signed integer, which is what torch.int32 holds."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def _mix(x: Tensor) -> Tensor:
    """Mix the bits of int32 values in place: the two-round multiply-xorshift hash "lowbias32" of C. Wellons."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= (x >> shift).bitwise_and_((1 << (32 - shift)) - 1)
        x *= _signed(factor)
    x ^= (x >> 16).bitwise_and_(0xFFFF)
    return x


class CounterRNG:
    """The random numbers of one step for the images of one batch."""

    _call = 0  # requests so far

    def __init__(self, seed: int, step: int, images: Sequence[str]) -> None:
        keys = torch.tensor([_signed(key_of(seed, step, image)) for image in images], dtype=torch.int32)
        shared = torch.tensor((key_of(seed, step, "all images") >> 10) / 2**53, dtype=torch.float64)
        self.keys = keys, shared  # (B,) of each image, and the number () that all images share

    @classmethod
    def of_keys(cls, keys: tuple[Tensor, Tensor]) -> CounterRNG:
        """The random numbers of a step whose `keys` are known."""
        rng = cls.__new__(cls)
        rng.keys = keys
        return rng

    def uniform(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Numbers in [0, 1), float32 (B, ...) with at most four more axes, the same on every device."""
        keys = self._keys_on(device)[0]
        self._call += 1
        x = _mix(keys + _signed(self._call * 0x9E3779B9))
        for axis, (size, factor) in enumerate(zip(shape[1:], _AXES, strict=False)):
            index = torch.arange(size, dtype=torch.int32, device=device) * _signed(factor)
            x = x.unsqueeze(-1) + index.reshape(*[1] * (axis + 1), size)
        return _mix(x).bitwise_and_(0xFFFFFF).to(torch.float32) * 2.0**-24

    def timesteps(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """The items of a loop over time, which counts requests anew for each; their number changes no later request."""
        before, drew = self._call, False
        for number, item in enumerate(items):
            self._call = first = key_of(before, "over time", number)
            try:
                yield item
            finally:  # the next iteration, the end, or an early exit from the loop
                drew = drew or self._call != first
                self._call = before + drew

    def shared_uniform(self, device: torch.device) -> Tensor:
        """One number in [0, 1), (), for all images of the step, on all processes."""
        return self._keys_on(device)[1]

    def _keys_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if self.keys[0].device != device:
            self.keys = self.keys[0].to(device), self.keys[1].to(device)
        return self.keys


_current: contextvars.ContextVar[CounterRNG | None] = contextvars.ContextVar("rng", default=None)


@contextlib.contextmanager
def use(rng: CounterRNG) -> Iterator[None]:
    """Give the dropout layers inside the block their random numbers."""
    token = _current.set(rng)
    try:
        yield
    finally:
        _current.reset(token)


def uniform(shape: Sequence[int], device: torch.device) -> Tensor:
    """Numbers in [0, 1) for a model that samples: those of the `use` block, or torch's own outside of one."""
    rng = _current.get()
    return torch.rand(tuple(shape), device=device) if rng is None else rng.uniform(shape, device)


def timesteps(items: Iterable[ItemT]) -> Iterator[ItemT]:
    """The items of a loop over time, as `CounterRNG.timesteps` of the `use` block, or as they are outside of one."""
    rng = _current.get()
    return iter(items) if rng is None else rng.timesteps(items)


def shared_uniform(device: torch.device) -> Tensor:
    """A number in [0, 1), (), that the images of a step share: of the `use` block, or torch's own outside of one."""
    rng = _current.get()
    return torch.rand((), device=device) if rng is None else rng.shared_uniform(device)


class Dropout(nn.Module):
    """Dropout over (B, ...) whose mask depends on (seed, step, image) alone; outside a `use` block torch's own."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Zero each number with the probability and scale the rest; nothing in eval mode."""
        if not self.training or self.probability == 0:
            return x
        rng = _current.get()
        if rng is None:
            return F.dropout(x, self.probability)
        keep = rng.uniform(x.shape, x.device) >= self.probability
        return x * keep.to(x.dtype) / (1 - self.probability)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"p={self.probability}"
