"""Random scenes: clear, within the picture, of all kinds, and with the held-out pairs where they belong."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from showtell.scenes import Scene
from showtell.scenes.outlines import box
from showtell.scenes.relations import is_inside, is_touching, is_unambiguous
from showtell.scenes.sampling import LAYOUTS, sample_scene
from showtell.scenes.world import BACKGROUNDS, COLOURS, HELD_OUT, PATTERNS, SHAPES, SIZES, UNITS


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_scene(Random(k)) for k in range(400)]


def test_no_scene_has_a_border_case(scenes: list[Scene]) -> None:
    assert all(is_unambiguous(scene) for scene in scenes)


def test_items_lie_within_the_picture(scenes: list[Scene]) -> None:
    for item in (item for scene in scenes for item in scene.items):
        left, top, width, height = box(item)
        assert min(left, top) >= 2
        assert max(left + width, top + height) <= UNITS - 2


def test_scenes_are_of_all_kinds(scenes: list[Scene]) -> None:
    items = [item for scene in scenes for item in scene.items]
    assert {len(scene.items) for scene in scenes} == {1, 2, 3, 4}
    assert {scene.background for scene in scenes} == {*BACKGROUNDS}
    assert {item.shape for item in items} == {*SHAPES}
    assert {item.colour for item in items} == {*COLOURS}
    assert {item.size for item in items} == {*SIZES}
    assert {item.pattern for item in items} == {*PATTERNS}
    looks = [Counter((item.shape, item.colour) for item in scene.items) for scene in scenes]
    assert 0.1 < sum(max(look.values()) > 1 for look in looks) / len(scenes) < 0.4


def test_some_scenes_have_things_in_each_other_and_some_that_cover_each_other(scenes: list[Scene]) -> None:
    def share(relation: object) -> float:
        return sum(
            any(relation(a, b) for a in scene.items for b in scene.items if a is not b)  # type: ignore[operator]
            for scene in scenes
        ) / len(scenes)

    assert 0.1 < share(is_inside) < 0.25
    assert 0.1 < share(is_touching) < 0.25


def test_held_out_pairs_are_in_compositional_scenes_only(scenes: list[Scene]) -> None:
    assert not any((item.colour, item.shape) in HELD_OUT for scene in scenes for item in scene.items)
    for k in range(100):
        scene = sample_scene(Random(k), compositional=True)
        assert any((item.colour, item.shape) in HELD_OUT for item in scene.items)


def test_shares_of_the_plans_sum_to_one() -> None:
    assert sum(share for share, _ in LAYOUTS.values()) == pytest.approx(1.0)
