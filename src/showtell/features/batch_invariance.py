"""Convolutions of a photo whose bits do not depend on how many others share its batch.

On a CPU torch computes a convolution by oneDNN or by a product of its own, whichever it takes to be faster, and the
results differ in the last bits. The choice depends on the number of photos in two ways: one photo alone goes to the
product if its map is small, and with 1x1 filters on one thread fewer than 16 photos do. Inside
`BatchInvariantConvolutions()` a photo alone is computed twice where its map is small, and many photos a few at a time
where the filters are 1x1, so that the choice is always that of 2 to 15 photos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SMALL = 20_480  # numbers in the map of a photo alone, up to which torch takes its own product
FEW = 8  # photos; from 16 on torch takes oneDNN for 1x1 filters too


class BatchInvariantConvolutions(TorchFunctionMode):
    """While it is active, convolutions without gradients on a CPU do not depend on the batch."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        """Any function of torch, conv2d as said above."""
        if func is torch.conv2d:
            return _conv2d(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _conv2d(images: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, *args: Any) -> Tensor:
    def convolution(some: Tensor) -> Tensor:
        return torch.conv2d(some, weight, bias, stride, *args)

    if images.dim() == 4 and images.device.type == "cpu":
        is_product = weight.shape[-2:] == (1, 1) and stride in (1, (1, 1)) and torch.get_num_threads() == 1
        if is_product and len(images) > FEW:
            return torch.cat([convolution(part) for part in torch.split(images, FEW)])
        if not is_product and len(images) == 1 and images.numel() <= SMALL:
            return convolution(images.expand(2, -1, -1, -1))[:1]
    return convolution(images)
