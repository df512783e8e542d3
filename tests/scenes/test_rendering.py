"""Pictures: colours where they should be, patterns that can be seen, sizes that differ in pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from showtell.scenes import Scene
from showtell.scenes.outlines import area, box
from showtell.scenes.rendering import PAPER, RGB, render
from showtell.scenes.world import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES
from tests.scenes.literals import item, scene


def pixels(picture: Scene, size: int = 96) -> np.ndarray:
    return np.asarray(render(picture, size)).astype(int)


def near(image: np.ndarray, colour: object, tolerance: int) -> np.ndarray:
    """Which pixels have about this colour."""
    return np.abs(image - np.array(colour)).max(axis=-1) <= tolerance


def test_colours_stand_out_from_each_other_and_from_every_background() -> None:
    for background, colour in itertools.product(BACKGROUNDS, COLOURS):
        image = pixels(scene(background, f"medium solid {colour} circle 48 48"))
        assert (tuple(image[48, 48]), tuple(image[2, 2])) == (RGB[colour], PAPER[background])
        assert np.abs(np.array(RGB[colour]) - PAPER[background]).max() > 60
    for one, other in itertools.combinations(COLOURS, 2):
        assert np.abs(np.subtract(RGB[one], RGB[other])).max() >= 80, (one, other)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_item_covers_its_area_and_stays_in_its_box(shape: str) -> None:
    thing = item(f"medium solid blue {shape} 48 48")
    image = pixels(Scene("white", (thing,)))
    drawn = (image != 255).any(axis=-1)
    left, top, width, height = box(thing)
    rows, columns = np.nonzero(drawn)
    assert left - 1.5 <= columns.min() and columns.max() + 1 <= left + width + 1.5
    assert top - 1.5 <= rows.min() and rows.max() + 1 <= top + height + 1.5
    # A pixel of the rim counts whole, so the drawn area exceeds the true one by about half the circumference.
    assert area(thing) * 0.98 < drawn.sum() < area(thing) + 5 * thing.extent


@pytest.mark.parametrize("size", SIZES)
def test_patterns_can_be_seen(size: str) -> None:
    """Marks are a fair share of the item, and colour too; the patterns differ from each other in many pixels."""
    for shape, colour in zip(SHAPES, 4 * ("blue", "yellow"), strict=True):
        plain, *marked = (pixels(scene("grey", f"{size} {one} {colour} {shape} 48 48")) for one in PATTERNS)
        inside = near(plain, RGB[colour], 10)
        for image in marked:
            assert 0.15 < (~near(image, plain, 60) & inside).sum() / inside.sum() < 0.75, shape
            assert near(image, RGB[colour], 60).sum() > 0.2 * inside.sum(), shape
        assert (~near(*marked, 60) & inside).sum() > 0.15 * inside.sum(), shape


def test_later_items_cover_earlier_ones() -> None:
    below, above = "big solid red square 48 48", "small solid green circle 48 48"
    assert tuple(pixels(scene("white", below, above))[48, 48]) == RGB["green"]
    assert tuple(pixels(scene("white", above, below))[48, 48]) == RGB["red"]


def test_sprites_are_placed_to_the_pixel() -> None:
    """Moving an item moves its pixels and changes none."""
    image = pixels(scene("white", "medium dotted purple heart 40 40"))
    moved = pixels(scene("white", "medium dotted purple heart 47 45"))
    assert (np.roll(image, (5, 7), axis=(0, 1)) == moved).all()
