"""Which photos of a batch go through a network together, where photos keep their own shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

PIXELS_AT_ONCE = 8 * 800 * 1344  # of one pass on a GPU, whatever the batch: it bounds the memory


def group_by_shape(shapes: Sequence[tuple[int, ...]], device: torch.device) -> Iterator[list[int]]:
    """Split a batch into passes of one shape each; on a CPU every photo goes alone, which is no slower there.

    Photos of different shapes do not share a pass: the zeros that fill up the smaller ones would reach into them
    through the convolutions, so that the features of a photo would depend on its company.

    Args:
        shapes: of each photo: height, width, and whatever else has to be equal within a pass.
        device: that computes.

    Yields:
        Indices of the photos of a pass.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, shape in enumerate(shapes):
        groups.setdefault(shape, []).append(index)
    for (height, width, *_), indices in groups.items():
        count = 1 if device.type == "cpu" else max(1, PIXELS_AT_ONCE // (height * width))
        yield from (indices[first : first + count] for first in range(0, len(indices), count))
