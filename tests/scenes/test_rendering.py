"""Pictures: colours where they should be, patterns that can be seen, sizes that differ in pixels."""

from __future__ import annotations

import numpy as np
import pytest

from showtell.scenes import Scene
from showtell.scenes.outlines import area, box
from showtell.scenes.rendering import render
from showtell.scenes.world import SHAPES
from tests.scenes.literals import item


def pixels(picture: Scene, size: int = 96) -> np.ndarray:
    return np.asarray(render(picture, size)).astype(int)


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
