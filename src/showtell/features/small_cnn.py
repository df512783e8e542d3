"""The encoder `small_cnn`, ours: a convolutional network for small pictures, trained from scratch in minutes."""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from showtell.config import Pixels, Size
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.weights import load_weights as fit_weights
from showtell.features.weights import part_of_checkpoint, read_weights, weights_path
from showtell.images.preprocessing import Preprocessing


class SmallCnnConfig(EncoderConfig):
    """A small convolutional encoder for small pictures."""

    name: Literal["small_cnn"] = "small_cnn"
    image_size: Pixels = Field(96, ge=16, description="Pixels of each side of the input.")
    widths: tuple[Size, ...] = Field(
        (32, 64, 128, 256),
        min_length=1,
        max_length=16,
        description="Channels of each stage; each stage halves the feature map.",
    )
    norm: Literal["batch", "none"] = Field(
        "batch", description="Normalisation after each convolution: batch norm, or none, which adds a bias instead."
    )
    stage: int = Field(
        -1, description="Stage that returns the feature map, counted from 0; -1 is the last, with one more convolution."
    )
    position_embedding: bool = Field(True, description="Add a learned vector to each grid cell.")
    position_slope: float = Field(
        0.0,
        ge=0,
        description="Standard deviation of the slopes of the initial position embedding along rows and columns, whose "
        "coordinates go from -1 to 1; 0 initialises it with noise of 0.02.",
    )
    weights: str = Field(
        "random",
        min_length=1,
        description="`random`, or a file of weights; those of a run's encoder are in RUN/best/model.safetensors.",
    )

    @model_validator(mode="after")
    def _has_the_stage(self) -> Self:
        stages = len(self.widths)
        if not -stages <= self.stage < stages:
            raise ValueError(f"stage={self.stage}: widths make {stages} maps, numbered 0 to {stages - 1}")
        return self


class SmallCnn(GridEncoder):
    """3x3 convolutions with stride 2, batch norm and ReLU, a few times, and one with stride 1.

    Norms within an image lose the colour of flat shapes (docs/lab_notes.md). Without any norm an image's features do
    not depend on its batch, and learning is a little slower. Each cell gets a learned vector, because captions speak of
    positions and attention alone does not see them. As noise of 0.02 it learns too slowly to tell left and right apart;
    with `position_slope` it begins as r y + s x, random weights of the cell's coordinates, which Liu et al. ("An
    intriguing failing of convolutional neural networks and the CoordConv solution", NeurIPS 2018) give as channels.
    """

    config: SmallCnnConfig

    def __init__(self, config: SmallCnnConfig, load_weights: bool = True) -> None:
        super().__init__()
        self.config = config
        stage = range(len(config.widths))[config.stage]
        widths = config.widths[: stage + 1]
        self.feature_size = widths[-1]
        self.preprocessing = Preprocessing(
            image_size=config.image_size, resize="squash", interpolation="bilinear", mean=(0.5, 0.5, 0.5),
            deviation=(0.25, 0.25, 0.25),
        )  # fmt: skip
        layers: list[nn.Module] = []
        before = 3
        last = [(widths[-1], 1)] if widths == config.widths else []
        for width, stride in [*((width, 2) for width in widths), *last]:
            convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=config.norm == "none")
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            norm = [nn.BatchNorm2d(width)] if config.norm == "batch" else []
            layers += [convolution, *norm, nn.ReLU(inplace=True)]
            before = width
        self.layers = nn.Sequential(*layers)
        self.stride = 2 ** len(widths)
        side = math.ceil(config.image_size / self.stride)
        self.position_embedding = nn.Parameter(torch.empty(before, side, side)) if config.position_embedding else None
        if self.position_embedding is not None:
            _initialise(self.position_embedding, config.position_slope)
        if load_weights and config.weights != "random":
            file = weights_path(config.weights)
            tensors = read_weights(file)
            tensors = part_of_checkpoint(tensors, "encoder") or tensors
            unused = [f"layers.{layer}." for layer in range(len(self.layers), 3 * len(config.widths) + 3)]
            unused += [] if config.position_embedding else ["position_embedding"]
            fit_weights(self, tensors, source=str(file), name="small_cnn with these settings", unused=unused)
        self.to(memory_format=torch.channels_last)

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, D, S / 2**stages, S / 2**stages), rounded up; stages are those up to the chosen one."""
        maps: Tensor = self.layers(images)
        return maps if self.position_embedding is None else maps + self.position_embedding


@torch.no_grad()
def _initialise(embedding: Tensor, slope: float) -> None:
    """Fill (C, rows, columns) with noise, or with r_c y + s_c x for y and x from -1 to 1; r and s deviate by slope."""
    if embedding.is_meta:  # its values come later, and for arithmetic there torch imports its compiler: 1.5 s
        return
    if not slope:
        nn.init.normal_(embedding, std=0.02)
        return
    channels, *sides = embedding.shape
    y, x = ((2 * torch.arange(cells) + 1) / cells - 1 for cells in sides)  # the middles of the cells
    along_rows, along_columns = nn.init.normal_(torch.empty(2, channels, 1, 1), std=slope)
    embedding.copy_(along_rows * y[:, None] + along_columns * x)
