"""Spatial relations: the margins by hand, the symmetries as properties, the geometry against plain sampling."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from showtell.scenes import Item
from showtell.scenes.outlines import box, outline
from showtell.scenes.relations import APART, PAIRWISE, TOUCH, distance, is_between, is_inside, is_touching
from showtell.scenes.world import EXTENTS, SHAPES, SIZES, UNITS
from tests.scenes.literals import is_unambiguous, item, scene


def items() -> st.SearchStrategy[Item]:
    """Any item of the world whose centre lies in the picture."""
    sized = st.sampled_from(SIZES).flatmap(lambda size: st.tuples(st.just(size), st.integers(*EXTENTS[size])))
    drawn = st.tuples(st.sampled_from(SHAPES), sized, st.integers(0, UNITS), st.integers(0, UNITS))
    return drawn.map(lambda one: Item(one[0], "red", one[1][0], "solid", one[2], one[3], one[1][1]))


def test_relations_have_margins() -> None:
    here, large = item("small solid red circle 48 48"), item("big solid red circle 48 48")
    for difference, expected in [(12, True), (11, None), (7, None), (6, False), (-30, False)]:
        for name, x, y in (("left", 1, 0), ("right", -1, 0), ("above", 0, 1), ("below", 0, -1)):
            other = item(f"small solid red star {48 + x * difference} {48 + y * difference}")
            assert PAIRWISE[name](here, other) is expected, (name, difference)
    # Two circles of extent 20 with centres d apart: their outlines are d - 20 apart.
    for apart, expected in [(15, True), (21, True), (22, None), (23, None), (24, False)]:
        assert is_touching(here, item(f"small solid blue circle {48 + apart} 48")) is expected
    # A circle of extent 20 in one of extent 46: d from the middle, 23 - 10 - d away from the outline, a polygon.
    for offset, expected in [(0, True), (8, True), (11, None), (12, False), (40, False)]:
        assert is_inside(item(f"small solid blue circle {48 + offset} 48"), large) is expected


def test_between_has_a_margin() -> None:
    """Between (10, 48) and (90, 48): t = (x - 10) / 80, d = |y - 48|."""
    ends = item("small solid red circle 10 48"), item("small solid red circle 90 48")
    by_hand = {"50 48": True, "30 56": True, "50 58": None, "50 62": None, "26 48": None}
    by_hand |= {"50 63": False, "20 48": False}
    for position, expected in by_hand.items():
        assert is_between(item(f"small solid blue star {position}"), *ends) is expected
    assert is_between(item("small solid blue star 10 48"), ends[0], ends[0]) is False


def test_a_scene_with_a_border_case_is_not_clear() -> None:
    assert is_unambiguous(scene("white", "small solid red circle 20 48", "small solid blue star 70 48"))
    assert not is_unambiguous(scene("white", "small solid red circle 20 48", "small solid blue star 29 80"))


@given(items(), items(), items(), st.integers(-20, 20), st.integers(-20, 20))
def test_symmetries_and_what_excludes_each_other(a: Item, b: Item, c: Item, x: int, y: int) -> None:
    def moved(one: Item) -> Item:
        return replace(one, x=one.x + x, y=one.y + y)

    assume(min(abs(distance(a, b) - limit) for limit in (TOUCH, APART)) > 1e-9)  # there rounding decides
    here = {name: holds(a, b) for name, holds in PAIRWISE.items()}
    there = {name: holds(b, a) for name, holds in PAIRWISE.items()}
    assert here == {name: holds(moved(a), moved(b)) for name, holds in PAIRWISE.items()}
    for name, converse in (("left", "right"), ("above", "below"), ("touching", "touching")):
        assert here[name] is there[converse]
    for name, other in (("left", "right"), ("above", "below"), ("inside", "touching")):
        assert not (here[name] and here[other])
    assert not (here["inside"] and there["inside"])
    assert is_between(c, a, b) is is_between(c, b, a)


def sampled(one: Item) -> np.ndarray:
    """Points a quarter of a unit apart along an outline."""
    corners = outline(one)
    sides = zip(corners, np.roll(corners, -1, axis=0), strict=True)
    return np.concatenate([np.linspace(start, end, 2 + int(4 * np.hypot(*(end - start)))) for start, end in sides])


def test_sides_in_one_line_do_not_touch() -> None:
    """The bases of two triangles in one line, their corners 1.6 apart: a border case, not contact."""
    here = item("small solid red triangle 30 48")
    assert box(here)[2] == pytest.approx(2 * 1.12 * 10)
    assert is_touching(here, item("small solid blue triangle 54 48")) is None  # 24 - 22.4
    assert is_touching(here, item("small solid blue triangle 57 48")) is False


@given(items(), items())
def test_touching_agrees_with_points_sampled_along_the_outlines(a: Item, b: Item) -> None:
    one, other = sampled(a), sampled(b)
    nearest = float(np.hypot(*(one[:, None] - other[None]).transpose(2, 0, 1)).min())
    if nearest < 0.8:
        assert is_touching(a, b)
    if nearest > 1.3:
        assert not is_touching(a, b)
    if nearest > 4.3:
        assert is_touching(a, b) is False
