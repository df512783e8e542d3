"""A ResNet of the Caffe kind, layer by layer, from its tensors by torchvision's names."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from torch.nn import functional as F


def stem(tensors: Mapping[str, Tensor], pixels: Tensor) -> Tensor:
    """The first convolution and the pooling behind it, which pads nothing and keeps what is left over."""
    x = norm(tensors, F.conv2d(pixels, tensors["conv1.weight"], stride=2, padding=3), "bn1").relu()
    below, right = ((side - 3) % 2 for side in x.shape[-2:])  # what a whole last window lacks
    return F.max_pool2d(F.pad(x, (0, right, 0, below), value=-np.inf), 3, 2)


def stage(tensors: Mapping[str, Tensor], x: Tensor, stage: str, blocks: int, stride: int, dilation: int = 1) -> Tensor:
    """The blocks of a stage; the first takes its stride in the 1x1 convolution in front and beside."""
    for block in range(blocks):
        name, step = f"{stage}.{block}", stride if block == 0 else 1
        y = norm(tensors, F.conv2d(x, tensors[f"{name}.conv1.weight"], stride=step), f"{name}.bn1").relu()
        y = F.conv2d(y, tensors[f"{name}.conv2.weight"], padding=dilation, dilation=dilation)
        y = norm(tensors, y, f"{name}.bn2").relu()
        y = norm(tensors, F.conv2d(y, tensors[f"{name}.conv3.weight"]), f"{name}.bn3")
        if block == 0:
            x = F.conv2d(x, tensors[f"{name}.downsample.0.weight"], stride=step)
            x = norm(tensors, x, f"{name}.downsample.1")
        x = (x + y).relu()
    return x


def norm(tensors: Mapping[str, Tensor], x: Tensor, name: str) -> Tensor:
    """A batch norm by its stored statistics."""
    mean, variance, weight, bias = (
        tensors[f"{name}.{part}"].view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def enliven(tensors: Mapping[str, Tensor]) -> None:
    """Statistics and weights of batch norms that change what they see, in place of those of a fresh network."""
    for name, tensor in tensors.items():
        if name.endswith("running_mean"):
            tensor.normal_(0, 0.1)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
            owner = name.removesuffix("running_var")
            tensors[f"{owner}weight"].uniform_(0.2, 0.6)
            tensors[f"{owner}bias"].normal_(0, 0.1)
