"""A hot cell lights exactly the pixels that it saw, and no weight is lost between cells and pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from showtell.explanations.geometry import DEVIATION, SAMPLES, attention_map
from showtell.features import build_encoder, encoder_config
from showtell.features.grid import GridEncoder
from showtell.images.boxes import boxes_on_photo, scale_boxes
from showtell.images.loading import prepare_photo
from showtell.images.preprocessing import Preprocessing
from showtell.types import PreparedBatch
from tests.features.test_geometry import Patches, preprocessing

# Photo, resize, share of the shorter side, image size, patch, pooled to. Cells begin and end between pixels.
EXACT = [
    ((40, 24), "squash", 1.0, 80, 40, None),
    ((24, 36), "squash", 1.0, 48, 8, None),
    ((36, 12), "squash", 1.0, 48, 16, 2),
    ((30, 20), "crop", 1.0, 40, 10, None),
    ((20, 34), "crop", 1.0, 40, 8, None),
    ((40, 24), "crop", 0.5, 24, 8, None),
    ((24, 40), "crop", 0.75, 36, 12, None),
]


def cells(encoder: GridEncoder, photo: Image.Image) -> np.ndarray:
    """What each cell saw, (R,)."""
    pixels = encoder.preprocessing.prepare(photo)
    return encoder(PreparedBatch.of(pixels.unsqueeze(0))).vectors[0, :, 0].detach().numpy()


def hot(cell: int, of: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(cell), of).float()


def boxes_of(encoder: GridEncoder, size: tuple[int, int]) -> torch.Tensor:
    features = encoder(
        PreparedBatch.of(torch.zeros(1, 3, encoder.preprocessing.image_size, encoder.preprocessing.image_size).byte())
    )
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


def test_pixels_that_several_cells_saw_get_something_from_each():
    """A map of 3 x 3 pooled to 2 x 2: the cells share its middle row and column."""
    encoder = Patches(preprocessing(24), 8, grid=2)
    boxes = boxes_of(encoder, (12, 12))
    lit = attention_map(torch.tensor([0.4, 0.3, 0.2, 0.1]), boxes, (12, 12))
    assert lit[0, 0] == pytest.approx(0.4 / 64)
    assert lit[0, 5] == pytest.approx((0.4 + 0.3) / 64)
    assert lit[5, 5] == pytest.approx(1.0 / 64)
    assert lit[11, 11] == pytest.approx(0.1 / 64)
    assert lit.sum() == pytest.approx(1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("case", [EXACT[0], EXACT[3], EXACT[5]], ids=["squash", "crop", "part"])
def test_a_photo_that_was_turned_is_lit_where_it_stands_upright(tmp_path, orientation, case):
    """What a cell's map lights fills that cell and touches no other; the rest of the photo does not touch it."""
    size, resize, share, side, patch, grid = case
    encoder = Patches(preprocessing(side, resize, share), patch, grid)
    back = {
        1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation

    def encode(upright: np.ndarray) -> np.ndarray:
        stored = Image.fromarray(upright.astype(np.uint8) * 255).convert("RGB")
        stored = stored if back is None else stored.transpose(back)
        stored.save(tmp_path / "photo.png", exif=exif)
        photo = prepare_photo(tmp_path / "photo.png", encoder.preprocessing)
        assert photo.size == size
        assert photo.window == encoder.preprocessing.window(size)
        return encoder(PreparedBatch.of(photo.pixels.unsqueeze(0))).vectors[0, :, 0].detach().numpy()

    nothing, everything = encode(np.zeros(size[::-1], bool)), encode(np.ones(size[::-1], bool))
    boxes = boxes_of(encoder, size)
    for cell in (0, len(boxes) // 2 + 1, len(boxes) - 1):
        lit = attention_map(hot(cell, len(boxes)), boxes, size) > 0
        expected = np.where(np.arange(len(boxes)) == cell, everything, nothing)
        assert encode(lit) == pytest.approx(expected, abs=1e-3)
        assert encode(~lit) == pytest.approx(everything + nothing - expected, abs=1e-3)


@pytest.mark.parametrize("size", [(60, 40), (40, 60), (100, 25)])
def test_a_region_of_a_photo_that_was_fitted_lights_its_own_pixels(size):
    """A detector's box, in pixels of an image that kept the photo's shape, comes back to the object it was put on."""
    fitted = Preprocessing(
        image_size=80, resize="fit", longest=200, interpolation="nearest", mean=(0.5,) * 3, deviation=(0.5,) * 3
    )
    left, top, right, bottom = 10, 5, 25, 20
    photo = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    photo[top:bottom, left:right] = 255
    image = fitted.prepare(Image.fromarray(photo))
    rows, columns = (image[0] > 0).nonzero().unbind(-1)
    box = torch.tensor([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]).float()
    window = torch.tensor(fitted.window(size))
    boxes = boxes_on_photo(box, window, (image.shape[1], image.shape[2]))
    lit = attention_map(torch.tensor([1.0]), boxes, size)
    assert np.array_equal(lit > 1e-6, photo[..., 0] > 0)
    assert lit.sum() == pytest.approx(1)


def test_regions_overlap_and_add_up():
    boxes = torch.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    lit = attention_map(torch.tensor([0.4, 0.6]), boxes, (4, 3))
    expected = np.array([[0.1, 0.1, 0, 0], [0.1, 0.25, 0.15, 0], [0, 0.15, 0.15, 0]])
    np.testing.assert_allclose(lit, expected)
    np.testing.assert_allclose(attention_map(torch.tensor([0.4, 0.6]), boxes, (4, 3), style="smooth"), expected)


def test_a_pixel_on_an_edge_belongs_to_a_cell_by_its_share():
    lit = attention_map(torch.tensor([1.0]), torch.tensor([[0.25, 0.0, 2.25, 1.0]]), (3, 1))
    np.testing.assert_allclose(lit, [[0.375, 0.5, 0.125]])


def test_a_region_without_area_lights_nothing():
    lit = attention_map(torch.tensor([0.5, 0.5]), torch.tensor([[1.0, 1, 1, 3], [0, 0, 2, 2]]), (4, 4))
    assert lit.sum() == pytest.approx(0.5)


@settings(max_examples=40, deadline=None)
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


def test_many_words_at_once_are_each_alone():
    boxes = boxes_of(Patches(preprocessing(32), 8), (50, 30))
    weights = torch.rand(5, 16, generator=torch.Generator().manual_seed(0))
    for style in ("nearest", "smooth"):
        heatmaps = attention_map(weights, boxes, (50, 30), grid=(4, 4), style=style)
        for one, alone in zip(heatmaps, weights, strict=True):
            np.testing.assert_allclose(one, attention_map(alone, boxes, (50, 30), grid=(4, 4), style=style))


def test_the_smooth_map_is_the_papers_recipe_written_out():
    """Away from the edges: upsampled by 16 with straight lines between the cells, then a Gaussian of 20 samples."""
    side, cell = 9, 4
    boxes = boxes_of(Patches(preprocessing(8 * side), 8), (SAMPLES * side, SAMPLES * side))
    heatmap = attention_map(
        hot(cell * side + cell, side * side), boxes, (SAMPLES * side,) * 2, grid=(side, side), style="smooth"
    )
    positions = np.arange(SAMPLES * side)
    middle = SAMPLES * cell + SAMPLES / 2 - 0.5
    tent = np.clip(1 - np.abs(positions - middle) / SAMPLES, 0, None)
    blur = np.exp(-((positions[:, None] - positions[None]) ** 2) / (2 * (DEVIATION * SAMPLES) ** 2))
    profile = blur @ tent
    profile /= profile.sum()
    np.testing.assert_allclose(heatmap, np.outer(profile, profile), atol=2e-6)


def test_the_smooth_map_is_brightest_in_the_hot_cell_and_even_where_attention_is():
    boxes = boxes_of(Patches(preprocessing(48), 8), (120, 60))
    for cell in range(36):
        heatmap = attention_map(hot(cell, 36), boxes, (120, 60), grid=(6, 6), style="smooth")
        row, column = np.unravel_index(heatmap.argmax(), heatmap.shape)
        left, top, right, bottom = boxes[cell].tolist()
        assert left <= column + 0.5 <= right and top <= row + 0.5 <= bottom
    even = attention_map(torch.full((36,), 1 / 36), boxes, (120, 60), grid=(6, 6), style="smooth")
    assert even.min() > 0.9 / 7200 and even.max() < 1.1 / 7200


def test_what_is_cropped_away_stays_dark_when_smoothed():
    encoder = Patches(preprocessing(32, "crop"), 8)
    heatmap = attention_map(hot(0, 16), boxes_of(encoder, (60, 30)), (60, 30), grid=(4, 4), style="smooth")
    assert heatmap[:, :15].max() == heatmap[:, 45:].max() == 0
    assert heatmap[:, 15:45].min() > 0


def test_boxes_of_a_photo_fit_its_thumbnail():
    boxes = torch.tensor([[0.0, 0, 100, 50], [100, 50, 200, 100]])
    assert scale_boxes(boxes, (200, 100), (20, 40)).tolist() == [[0, 0, 10, 20], [10, 20, 20, 40]]


def test_the_cells_of_a_real_encoder_light_the_photo_evenly():
    encoder = build_encoder(encoder_config({"name": "small_cnn", "image_size": 50, "widths": [4, 4, 4]}))
    features = encoder(PreparedBatch.of(torch.zeros(1, 3, 50, 50, dtype=torch.uint8)))
    boxes = encoder.rectangles(features, torch.tensor([[0.0, 0, 100, 100]]))[0]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    lit = attention_map(areas / areas.sum(), boxes, (100, 100))
    np.testing.assert_allclose(lit, 1e-4, rtol=1e-5)
