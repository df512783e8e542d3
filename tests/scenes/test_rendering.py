"""Pictures: colours where they should be, patterns that can be seen, sizes that differ in pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from showtell.scenes import Scene
from showtell.scenes.outlines import area, box
from showtell.scenes.rendering import PAPER, RGB, render
from showtell.scenes.world import BACKGROUNDS, COLOURS, SHAPES
from tests.scenes.literals import item, scene


def pixels(picture: Scene, size: int = 96) -> np.ndarray:
    return np.asarray(render(picture, size)).astype(int)


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


def test_sprites_are_placed_to_the_pixel() -> None:
    """Moving an item moves its pixels and changes none."""
    image = pixels(scene("white", "medium dotted purple heart 40 40"))
    moved = pixels(scene("white", "medium dotted purple heart 47 45"))
    assert (np.roll(image, (5, 7), axis=(0, 1)) == moved).all()
