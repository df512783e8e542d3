"""The encoder `resnet_caffe`: ResNet as it was published in Caffe (He et al., 2016), over photos as they are.

Captioners trained with ruotianluo/ImageCaptioning.pytorch look through this network: `grid: 14` is what its
scripts/prepro_feats.py keeps as `att` features and `grid: 1` as `fc` features (read at 4c48a33). It has the names of
torchvision's network, and differs from it in two places:

1. The first block of stages 2 to 4 takes its stride in the 1x1 convolution in front, not in the 3x3 convolution.
2. The max pooling behind the first convolution pads nothing and keeps what is left over at the right and lower edges.

Photos are not resized. Those of COCO have 640 pixels or less; larger ones are shrunk to `longest`, so that objects are
about as large as those that the captioner learned from, and so that a very large photo fits into memory. Theirs are
computed at whatever size comes, and ours are equal to them up to 640 pixels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import WeightsError
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.quick_import import quick_import
from showtell.features.weights import load_weights as fit_weights
from showtell.features.weights import read_weights, weights_path
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

if TYPE_CHECKING:
    from torchvision.models.resnet import ResNet

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # of each stage, by the number of layers

_STRIDE = 32  # pixels of an image to a cell of the last map


class ResNetCaffeConfig(EncoderConfig):
    """A ResNet as it was published in Caffe."""

    name: Literal["resnet_caffe"] = "resnet_caffe"
    trained: Literal[False] = Field(False, description="Always frozen, as the captioners that it is for had it.")
    depth: Literal[50, 101, 152] = Field(101, description="Number of layers.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="A file of weights by torchvision's names, such as resnet101.pth converted from Caffe, or "
        "`random`; `pretrained` says where the file comes from.",
    )
    grid: Size = Field(
        14, description="Pool the feature map to grid x grid cells by adaptive averaging; 1 is the mean over the photo."
    )
    longest: Annotated[Pixels, Field(ge=_STRIDE)] = Field(
        640, description="Photos whose longer side has more pixels are shrunk to this; others keep their size."
    )


class ResNetCaffe(GridEncoder):
    """The last map of the network, pooled; each photo in its own size, alone."""

    config: ResNetCaffeConfig
    feature_size = 2048
    stride = _STRIDE

    def __init__(self, config: ResNetCaffeConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        self.grid = config.grid
        if load_weights and config.weights == "pretrained":
            raise WeightsError(
                f"The Caffe weights of ResNet-{config.depth} cannot be fetched by name: take resnet{config.depth}.pth "
                "from the folder that https://github.com/ruotianluo/ImageCaptioning.pytorch links to in its "
                "data/README.md, and give that file as the weights (encoder.weights=FILE)."
            )
        self.backbone = caffe_resnet(BLOCKS[config.depth])
        if load_weights and config.weights != "random":
            file, name = weights_path(config.weights), f"ResNet-{config.depth} of the Caffe kind"
            fit_weights(self.backbone, read_weights(file), source=str(file), name=name, unused=["fc."])
        self.backbone.to(memory_format=torch.channels_last)
        self.preprocessing = Preprocessing(
            image_size=_STRIDE, resize="none", longest=config.longest, interpolation="bilinear",
            mean=(0.485, 0.456, 0.406), deviation=(0.229, 0.224, 0.225),
        )  # fmt: skip

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, height, width) to (B, 2048, grid, grid)."""
        return F.adaptive_avg_pool2d(self.backbone.layer4(last_map_before_stage_4(self.backbone, images)), self.grid)

    @torch.no_grad()
    def forward(self, batch: PreparedBatch) -> Features:
        """Features with R = grid x grid, row by row from the upper left."""
        vectors = []
        for image in batch.images:
            pixels = self.preprocessing.normalise(image).unsqueeze(0)
            vectors.append(self.maps(pixels.to(memory_format=torch.channels_last)).flatten(2).transpose(1, 2))
        stacked = torch.cat(vectors)
        return Features(stacked, stacked.new_ones(stacked.shape[:2], dtype=torch.bool))

    def map_side(self, pixels: int, cells: int) -> int:
        """Cells of the map along a side: only the pooling behind the first convolution rounds down."""
        return math.ceil(math.ceil(pixels / 2) // 2 / 8)


def caffe_resnet(blocks: tuple[int, int, int, int]) -> ResNet:
    """A ResNet of Caffe's kind, no classifier; residual branches begin at 0, or fp16 could not hold features."""
    resnet = quick_import("torchvision.models.resnet")
    network: ResNet = resnet.ResNet(resnet.Bottleneck, list(blocks), zero_init_residual=True)  # Goyal et al., 2017
    network.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=0, ceil_mode=True)
    for stage in (network.layer2, network.layer3, network.layer4):
        stage[0].conv1.stride, stage[0].conv2.stride = (2, 2), (1, 1)
    network.fc = nn.Identity()
    return network


def last_map_before_stage_4(network: ResNet, images: Tensor) -> Tensor:
    """(B, 3, height, width) to (B, 1024, rows, columns), one cell for 16 pixels."""
    maps = network.maxpool(network.relu(network.bn1(network.conv1(images))))
    result: Tensor = network.layer3(network.layer2(network.layer1(maps)))
    return result
