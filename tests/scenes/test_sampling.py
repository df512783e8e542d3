"""Random scenes: clear, within the picture, of all kinds, and with the held-out pairs where they belong."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from showtell.scenes import Scene
from showtell.scenes.outlines import box
from showtell.scenes.relations import is_inside, is_touching
from showtell.scenes.sampling import sample_scene
from showtell.scenes.world import BACKGROUNDS, COLOURS, HELD_OUT, PATTERNS, SHAPES, SIZES, UNITS
from tests.scenes.literals import is_unambiguous


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample_scene(Random(k)) for k in range(400)]


def test_scenes_are_clear_and_within_the_picture(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert is_unambiguous(scene)
        for left, top, width, height in map(box, scene.items):
            assert min(left, top) >= 2 and max(left + width, top + height) <= UNITS - 2


def test_scenes_are_of_all_kinds(scenes: list[Scene]) -> None:
    items = [item for scene in scenes for item in scene.items]
    assert {len(scene.items) for scene in scenes} == {1, 2, 3, 4}
    assert {scene.background for scene in scenes} == {*BACKGROUNDS}
    for kind, values in (("shape", SHAPES), ("colour", COLOURS), ("size", SIZES), ("pattern", PATTERNS)):
        assert {getattr(item, kind) for item in items} == {*values}
    looks = [Counter((item.shape, item.colour) for item in scene.items) for scene in scenes]
    assert 0.1 < sum(max(look.values()) > 1 for look in looks) / len(scenes) < 0.4
    for relation in (is_inside, is_touching):
        holds = [any(relation(a, b) for a, b in itertools.permutations(scene.items, 2)) for scene in scenes]
        assert 0.1 < sum(holds) / len(scenes) < 0.25


def test_held_out_pairs_are_in_compositional_scenes_only(scenes: list[Scene]) -> None:
    assert not any((item.colour, item.shape) in HELD_OUT for scene in scenes for item in scene.items)
    for k in range(100):
        scene = sample_scene(Random(k), compositional=True)
        assert any((item.colour, item.shape) in HELD_OUT for item in scene.items)
