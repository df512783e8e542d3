"""Captions: true, of the language, different from each other, and their words name the right boxes."""

import numpy as np
import pytest

from showtell.scenes import Scene, SceneCaption
from showtell.scenes.dataset import sample_image
from showtell.scenes.outlines import area, box
from showtell.scenes.rendering import render
from showtell.scenes.truth import judge
from showtell.scenes.world import SHAPES
from tests.scenes.literals import item

Drawn = list[tuple[Scene, tuple[SceneCaption, ...]]]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return [sample_image(7, split, k) for split in ("train", "test_compositional") for k in range(200)]


def test_captions_are_true_different_and_of_five_to_twenty_words(drawn: Drawn) -> None:
    for scene, captions in drawn:
        assert len({caption.text for caption in captions}) == 5
        for caption in captions:
            assert judge(caption.text, scene).whole, caption.text
            assert 5 <= len(caption.text.split()) <= 20


@pytest.mark.parametrize("shape", SHAPES)
def test_an_item_covers_its_area_and_stays_in_its_box(shape: str) -> None:
    thing = item(f"medium solid blue {shape} 48 48")
    drawn = (np.asarray(render(Scene("white", (thing,)), 96)) != 255).any(axis=-1)
    left, top, width, height = box(thing)
    rows, columns = np.nonzero(drawn)
    assert left - 1.5 <= columns.min() and columns.max() + 1 <= left + width + 1.5
    assert top - 1.5 <= rows.min() and rows.max() + 1 <= top + height + 1.5
    # A pixel of the rim counts whole, so the drawn area exceeds the true one by about half the circumference.
    assert area(thing) * 0.98 < drawn.sum() < area(thing) + 5 * thing.extent
