"""Every vector knows which pixels of the photo it saw."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.features import build_encoder, encoder_config
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch


class Patches(GridEncoder):
    """Each cell sees the pixels of its patch and no others, as the first layer of a vision transformer does."""

    def __init__(self, preprocessing: Preprocessing, patch: int, grid: int | None = None) -> None:
        super().__init__()
        self.config = EncoderConfig(trained=False)
        self.preprocessing = preprocessing
        self.stride, self.grid, self.feature_size = patch, grid, 1
        self.patches = nn.Conv2d(3, 1, patch, stride=patch)
        nn.init.ones_(self.patches.weight)

    def maps(self, images: Tensor) -> Tensor:
        maps = self.patches(images)
        return maps if self.grid is None else F.adaptive_avg_pool2d(maps, self.grid)


def preprocessing(size: int, resize: str = "squash", share: float = 1.0, how: str = "nearest") -> Preprocessing:
    colours = {"mean": (0.5,) * 3, "deviation": (0.5,) * 3}
    return Preprocessing(image_size=size, resize=resize, crop_share=share, interpolation=how, **colours)


@settings(max_examples=150)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)) | st.sampled_from([(1, 300), (300, 1), (400, 9), (3, 200)]),
    point=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)), side=st.integers(1, 5),
    resize=st.sampled_from(["squash", "crop"]), share=st.floats(0.3, 1.0),
    how=st.sampled_from(["nearest", "bilinear", "bicubic"]), grid=st.none() | st.integers(1, 6),
)  # fmt: skip
def test_a_hot_pixel_changes_only_cells_whose_rectangle_holds_it(size, point, side, resize, share, how, grid):
    encoder = Patches(preprocessing(8 * side, resize, share, how), 8, grid)
    column, row = int(point[0] * size[0]), int(point[1] * size[1])
    dark = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    hot = dark.copy()
    hot[row, column] = 255
    window = encoder.preprocessing.window(size)

    def encode(pixels: np.ndarray) -> Features:
        return encoder(PreparedBatch.of(encoder.preprocessing.prepare(Image.fromarray(pixels)).unsqueeze(0)))

    features = encode(dark)
    change = (encode(hot).vectors - features.vectors).abs()[0, :, 0] > 1e-4
    left, top, right, bottom = encoder.rectangles(features, torch.tensor([window]))[0].unbind(-1)
    # how far resizing spreads a pixel, in pixels of the photo: the filter of Pillow, wider where the photo shrinks
    reach = {"nearest": 0.0, "bilinear": 1.0, "bicubic": 2.0}[how]
    across = reach * max(1.0, (window[2] - window[0]) / (8 * side)) + 1e-3
    down = reach * max(1.0, (window[3] - window[1]) / (8 * side)) + 1e-3
    holds = (left - across < column + 1) & (column < right + across) & (top - down < row + 1) & (row < bottom + down)
    assert not bool((change & ~holds).any())
    grown = window[2] - window[0] <= 8 * side and window[3] - window[1] <= 8 * side
    inside = window[0] <= column and column + 1 <= window[2] and window[1] <= row and row + 1 <= window[3]
    if how == "nearest" and grown and inside:  # no pixel is passed over
        assert bool(change.any())


def test_pooled_cells_have_the_pixels_that_adaptive_pooling_gives_them():
    for side in range(1, 17):
        for grid in range(1, 17):
            features = Features(torch.zeros(1, grid * grid, 1), torch.ones(1, grid * grid, dtype=torch.bool))
            windows = torch.tensor([[0.0, 0, side, side]])
            cells = Patches(preprocessing(8 * side), 8, grid).rectangles(features, windows)[0]
            pooled = F.adaptive_avg_pool1d(torch.eye(side).unsqueeze(0), grid)[0]  # (map cell, pooled cell)
            first = (pooled > 0).int().argmax(0)
            counts = (pooled > 0).sum(0)
            across = cells.view(grid, grid, 4)[0]
            torch.testing.assert_close(across[:, 0], first.float(), atol=1e-5, rtol=0)
            torch.testing.assert_close(across[:, 2], (first + counts).float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "size"), [("vit_tiny_patch16_224", 64), ("resnet18", 96), ("convnext_atto", 64)])
def test_backbones_have_a_rectangle_for_each_vector(name, size):
    encoder = build_encoder(encoder_config({"name": name, "weights": "random", "image_size": size, "trained": False}))
    features = encoder(PreparedBatch.of(torch.zeros(2, 3, size, size, dtype=torch.uint8)))
    cells = encoder.rectangles(features, torch.tensor([[0.0, 0, 640, 480], [10, 0, 20, 10]]))
    assert cells.shape == (2, features.vectors.shape[1], 4)
    side = math.isqrt(features.vectors.shape[1])
    assert cells[0, 0].tolist() == pytest.approx([0, 0, 640 / side, 480 / side])
    assert cells[1, -1].tolist() == pytest.approx([20 - 10 / side, 10 - 10 / side, 20, 10])
