"""A hot cell lights exactly the pixels that it saw, and no weight is lost between cells and pixels."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from showtell.explanations.geometry import DEVIATION, SAMPLES, attention_map
from showtell.features.grid import GridEncoder
from showtell.types import PreparedBatch
from tests.features.test_geometry import Patches, preprocessing

# Photo, resize, share of the shorter side, image size, patch, pooled to. Cells begin and end between pixels.
EXACT = [
    ((40, 24), "squash", 1.0, 80, 40, None),
    ((24, 36), "squash", 1.0, 48, 8, None),
    ((36, 12), "squash", 1.0, 48, 16, 2),
    ((30, 20), "crop", 1.0, 40, 10, None),
    ((24, 40), "crop", 0.75, 36, 12, None),
]


def cells(encoder: GridEncoder, photo: Image.Image) -> np.ndarray:
    """What each cell saw, (R,)."""
    pixels = encoder.preprocessing.prepare(photo)
    return encoder(PreparedBatch.of(pixels.unsqueeze(0))).vectors[0, :, 0].detach().numpy()


def hot(cell: int, of: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(cell), of).float()


def boxes_of(encoder: GridEncoder, size: tuple[int, int]) -> torch.Tensor:
    side = encoder.preprocessing.image_size
    features = encoder(PreparedBatch.of(torch.zeros(1, 3, side, side).byte()))
    return encoder.rectangles(features, torch.tensor([encoder.preprocessing.window(size)]))[0]


@pytest.mark.parametrize("case", EXACT, ids=lambda case: "-".join(map(str, case)))
def test_a_hot_cell_lights_exactly_the_pixels_that_it_saw(case):
    """Brute force: every pixel of the photo is lit in turn, and which cells notice is written down."""
    size, resize, share, side, patch, grid = case
    encoder = Patches(preprocessing(side, resize, share), patch, grid)
    width, height = size
    dark = cells(encoder, Image.new("RGB", size))
    noticed = np.zeros((len(dark), height, width), dtype=bool)
    for row in range(height):
        for column in range(width):
            photo = Image.new("RGB", size)
            photo.putpixel((column, row), (255, 255, 255))
            noticed[:, row, column] = cells(encoder, photo) - dark > 1e-4
    assert noticed.any()
    assert noticed.any(axis=0).all() == (resize == "squash")  # what is cropped away is seen by none
    boxes = boxes_of(encoder, size)
    for cell in range(len(dark)):
        lit = attention_map(hot(cell, len(dark)), boxes, size)
        assert np.array_equal(lit > 1e-6, noticed[cell])
        assert lit[noticed[cell]] == pytest.approx(1 / noticed[cell].sum())  # evenly


def test_regions_overlap_and_add_up():
    boxes = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    lit = attention_map(torch.tensor([0.4, 0.6]), boxes, (4, 3))
    expected = np.array([[0.1, 0.1, 0, 0], [0.1, 0.25, 0.15, 0], [0, 0.15, 0.15, 0]])
    np.testing.assert_allclose(lit, expected)
    np.testing.assert_allclose(attention_map(torch.tensor([0.4, 0.6]), boxes, (4, 3), style="smooth"), expected)


@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)), side=st.integers(1, 7),
    resize=st.sampled_from(["squash", "crop"]), share=st.floats(0.2, 1.0), grid=st.none() | st.integers(1, 6),
    style=st.sampled_from(["nearest", "smooth"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_no_weight_is_lost(size, side, resize, share, grid, style, seed):
    encoder = Patches(preprocessing(8 * side, resize, share), 8, grid)
    boxes = boxes_of(encoder, size)
    cells_across = math.isqrt(len(boxes))
    weights = torch.rand(3, 2, len(boxes), generator=torch.Generator().manual_seed(seed))
    heatmap = attention_map(weights, boxes, size, grid=(cells_across, cells_across), style=style)
    assert heatmap.shape == (3, 2, size[1], size[0])
    assert heatmap.min() >= 0
    np.testing.assert_allclose(heatmap.sum(axis=(-2, -1)), weights.double().sum(-1), rtol=1e-5)


def test_the_smooth_map_is_the_papers_recipe_written_out():
    """Away from the edges: upsampled by 16 with straight lines between the cells, then a Gaussian of 20 samples."""
    side, cell = 9, 4
    boxes = boxes_of(Patches(preprocessing(8 * side), 8), (SAMPLES * side, SAMPLES * side))
    weights = hot(cell * side + cell, side * side)
    heatmap = attention_map(weights, boxes, (SAMPLES * side,) * 2, grid=(side, side), style="smooth")
    positions = np.arange(SAMPLES * side)
    middle = SAMPLES * cell + SAMPLES / 2 - 0.5
    tent = np.clip(1 - np.abs(positions - middle) / SAMPLES, 0, None)
    blur = np.exp(-((positions[:, None] - positions[None]) ** 2) / (2 * (DEVIATION * SAMPLES) ** 2))
    profile = blur @ tent
    profile /= profile.sum()
    np.testing.assert_allclose(heatmap, np.outer(profile, profile), atol=2e-6)
