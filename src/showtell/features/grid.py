"""Grid features: one vector per cell of a convolutional map or per patch of a transformer.

Two encoders: `small_cnn`, ours, for small pictures, trained from scratch in minutes; and any backbone of timm by its
name (`resnet101`, `vgg19`, `vit_small_patch14_dinov2`, ...), at any of its stages, with its own preprocessing.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import timm
import timm.data
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.errors import RecipeError
from showtell.features.contract import Encoder, EncoderConfig
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features


class SmallCnnConfig(EncoderConfig):
    """A small convolutional encoder for small pictures."""

    name: Literal["small_cnn"] = "small_cnn"
    image_size: int = Field(96, ge=16)  # pixels of each side
    widths: tuple[int, ...] = Field((32, 64, 128, 256), min_length=1)  # channels after each halving of the map
    norm: Literal["batch", "none"] = "batch"  # what follows each convolution; none: a bias


class TimmConfig(EncoderConfig):
    """A backbone of timm."""

    name: str  # as timm lists it
    weights: Literal["pretrained", "random"] = "pretrained"
    image_size: int | None = Field(None, ge=16)  # None: the backbone's own
    stage: int = -1  # which of its feature maps; -1 is the last
    grid: int | None = Field(None, ge=1)  # adaptive average pooling to grid x grid cells; None: as they come
    resize: Literal["squash", "crop"] = "squash"  # captions speak of the whole picture, so none of it is cut off


class GridEncoder(Encoder, abc.ABC):
    """Images to one vector per grid cell, row by row."""

    @abc.abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, height, width) to feature maps (B, D, rows, columns)."""

    def grid_of(self, cells: int) -> tuple[int, int]:
        """(rows, columns) of a map with so many cells."""
        side = math.isqrt(cells)
        return (side, cells // side)

    def forward(
        self,
        images: Tensor | Sequence[Tensor],
        windows: Tensor | None = None,
        boxes: Sequence[Tensor] | None = None,
    ) -> Features:
        """Features with R = rows x columns, row by row from the upper left. Windows and boxes change nothing."""
        assert isinstance(images, Tensor), "squares are of one size"
        pixels = self.preprocessing.normalise(images).to(memory_format=torch.channels_last)
        if self.config.trained:
            maps = self.maps(pixels)
        else:
            with torch.no_grad():
                maps = self.maps(pixels)
        vectors = maps.flatten(2).transpose(1, 2).contiguous()
        return Features(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool))

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The rectangle of each cell; what a convolution sees beyond its cell is not counted."""
        rows, columns = self.grid_of(features.vectors.shape[1])
        left, top, right, bottom = windows.double().unbind(-1)  # each (B,)

        def edges(first: Tensor, last: Tensor, parts: int) -> Tensor:
            share = torch.arange(parts + 1, device=windows.device, dtype=torch.double) / parts
            return first.unsqueeze(-1) + (last - first).unsqueeze(-1) * share  # (B, parts + 1)

        x, y = edges(left, right, columns), edges(top, bottom, rows)
        corners = (
            x[:, None, :-1].expand(-1, rows, -1),
            y[:, :-1, None].expand(-1, -1, columns),
            x[:, None, 1:].expand(-1, rows, -1),
            y[:, 1:, None].expand(-1, -1, columns),
        )
        return torch.stack(corners, -1).flatten(1, 2).float()


class SmallCnn(GridEncoder):
    """Halve the map and widen it, a few times: a 3x3 convolution with stride 2, batch norm, ReLU, and another 3x3.

    Norms within an image (group, layer) lose the colour of flat shapes: after 400 steps on scenes they had learned a
    third of what batch norm had (docs/lab_notes.md). Without any norm an image's features do not depend on its batch,
    and learning is a little slower. A learned vector for each place of the grid is added, because captions speak of
    places ("left of") and attention alone does not see them.
    """

    def __init__(self, config: SmallCnnConfig) -> None:
        super().__init__()
        self.config = config
        self.feature_size = config.widths[-1]
        self.preprocessing = Preprocessing(
            image_size=config.image_size,
            resize="squash",
            interpolation="bilinear",
            mean=(0.5, 0.5, 0.5),
            deviation=(0.25, 0.25, 0.25),
        )
        layers: list[nn.Module] = []
        before = 3
        for width, stride in [*((width, 2) for width in config.widths), (config.widths[-1], 1)]:
            convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=config.norm == "none")
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            norm = [nn.BatchNorm2d(width)] if config.norm == "batch" else []
            layers += [convolution, *norm, nn.ReLU(inplace=True)]
            before = width
        self.layers = nn.Sequential(*layers)
        side = config.image_size
        for _ in config.widths:
            side = (side + 1) // 2
        self.places = nn.Parameter(0.02 * torch.randn(before, side, side))
        self.to(memory_format=torch.channels_last)

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, D, S / 2**stages, S / 2**stages), rounded up."""
        return self.layers(images) + self.places


class TimmGrid(GridEncoder):
    """A backbone of timm by name and stage."""

    config: TimmConfig

    def __init__(self, config: TimmConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        options: dict[str, Any] = {} if config.image_size is None else {"img_size": config.image_size}
        try:
            self.backbone = _create(config, load_weights, options)
        except (RuntimeError, OSError, ValueError) as error:
            raise RecipeError(
                f"The weights of {config.name} could not be loaded ({str(error).splitlines()[0]}); with a network they "
                f"come from the Hugging Face hub; without one, set encoder.weights=random or copy the hub's cache "
                f"folder ({_cache_folder()}) from a machine that has them."
            ) from error
        cfg = timm.data.resolve_model_data_config(self.backbone)
        self.preprocessing = Preprocessing(
            image_size=config.image_size or cfg["input_size"][1],
            resize=config.resize,
            crop_share=cfg["crop_pct"] if config.resize == "crop" else 1.0,
            interpolation=cfg["interpolation"],
            mean=cfg["mean"],
            deviation=cfg["std"],
        )
        self.feature_size = self.backbone.feature_info.channels()[-1]  # type: ignore[union-attr,operator]
        if not config.trained:
            self.backbone.requires_grad_(False)

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, D, rows, columns)."""
        maps = self.backbone(images)[-1]
        if self.config.grid is not None:
            maps = F.adaptive_avg_pool2d(maps, self.config.grid)
        return maps


def _cache_folder() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def _create(config: TimmConfig, load_weights: bool, options: dict[str, Any]) -> nn.Module:
    """The backbone, cut behind the stage that is wanted."""
    pretrained = load_weights and config.weights == "pretrained"

    def make(**size: Any) -> nn.Module:
        return timm.create_model(
            config.name, pretrained=pretrained, features_only=True, out_indices=(config.stage,), **size
        )

    try:
        try:
            return make(**options)
        except TypeError:  # a convolutional backbone takes any size, and has no option for it
            return make()
    except (IndexError, AssertionError) as error:
        whole = timm.create_model(config.name, features_only=True)
        stages = len(whole.feature_info.info)  # type: ignore[union-attr,arg-type]
        raise RecipeError(
            f"encoder.stage={config.stage}: {config.name} has {stages} feature maps, numbered 0 to {stages - 1} or, "
            f"from the last, -1 to -{stages}."
        ) from error
