"""Spatial relations between items, each a function of their positions that is True, False, or None where ambiguous.

With dx, dy the differences of the centres in units,

    left, right, above, below   True from 12 on, False up to 6 (and on the wrong side)
    touching                    the outlines cross or come within 1; False from 4 on
    inside                      the outline lies within the other one, at least 4 away from it; False where it
                                comes within 1, crosses it or lies outside
    between                     with t the position along the line between the two others (0 at one, 1 at the
                                other) and d the distance from it: True for t in [1/4, 3/4] and d <= 8,
                                False for t outside [0.15, 0.85] or d > 14

What lies inside another item does not touch it. `is_unambiguous` tells whether a scene has no ambiguous relation at
all; only such scenes are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

from showtell.scenes.outlines import box, contains_point, do_cross, least_distance, outline
from showtell.scenes.world import Item, Scene

OFFSET, LEVEL = 12, 6  # difference of centres from which one item is beside the other, and up to which it is not
TOUCH, APART = 1.0, 4.0  # distance of outlines up to which they touch, and from which they do not
MIDDLE, OUTER = (0.25, 0.75), (0.15, 0.85)  # positions along a line that are between its ends, and may be
ON_LINE, OFF_LINE = 8.0, 14.0  # distance from that line up to which an item is between, and may be


def _box_distance(a: Item, b: Item) -> float:
    """The distance between the boxes of two items: their outlines are at least as far apart."""
    left_a, top_a, width_a, height_a = box(a)
    left_b, top_b, width_b, height_b = box(b)
    x = max(left_b - left_a - width_a, left_a - left_b - width_b, 0.0)
    y = max(top_b - top_a - height_a, top_a - top_b - height_b, 0.0)
    return math.hypot(x, y)


def _is_box_within(a: Item, b: Item) -> bool:
    """Whether the box of the first item lies within that of the second: what lies within it must."""
    left_a, top_a, width_a, height_a = box(a)
    left_b, top_b, width_b, height_b = box(b)
    across = left_b <= left_a and left_a + width_a <= left_b + width_b
    return across and top_b <= top_a and top_a + height_a <= top_b + height_b


@lru_cache(maxsize=16384)
def _contact(a: Item, b: Item) -> tuple[float, bool, bool]:
    """The distance between two outlines (0 where they cross), and whether each lies within the other.

    Beyond `APART` the distance is a lower bound.
    """
    apart = _box_distance(a, b)
    if apart > APART:
        return apart, False, False
    one, other = outline(a), outline(b)
    if do_cross(one, other):
        return 0.0, False, False
    within = _is_box_within(a, b) and contains_point(other, one[0])
    around = _is_box_within(b, a) and contains_point(one, other[0])
    return min(least_distance(one, other), least_distance(other, one)), within, around


def distance(a: Item, b: Item) -> float:
    """How far apart two outlines are, in units; 0 where they cross. Beyond 4 it is a lower bound."""
    return _contact(a, b)[0]


def _is_offset(difference: int) -> bool | None:
    if difference >= OFFSET:
        return True
    return False if difference <= LEVEL else None


def is_touching(a: Item, b: Item) -> bool | None:
    """Whether the outlines of two items cross or meet; None where that is ambiguous."""
    apart, _, _ = _contact(a, b)
    if apart <= TOUCH:
        return True
    return False if apart >= APART else None


def is_inside(a: Item, b: Item) -> bool | None:
    """Whether the first item lies within the outline of the second; None where that is ambiguous."""
    if _box_distance(a, b) > 0:
        return False
    apart, within, _ = _contact(a, b)
    if not within or apart <= TOUCH:
        return False
    return True if apart >= APART else None


def are_apart(a: Item, b: Item) -> bool | None:
    """Whether two items neither touch nor lie in each other; None where either is ambiguous."""
    apart, within, around = _contact(a, b)
    if apart <= TOUCH:
        return False
    if apart < APART:
        return None
    return not (within or around)


def is_between(middle: Item, a: Item, b: Item) -> bool | None:
    """Whether the first item lies between the two others; None where that is ambiguous."""
    line = (b.x - a.x, b.y - a.y)
    offset = (middle.x - a.x, middle.y - a.y)
    length = math.hypot(*line)
    if length == 0:
        return False
    fraction = (offset[0] * line[0] + offset[1] * line[1]) / length**2
    distance = abs(offset[0] * line[1] - offset[1] * line[0]) / length
    if MIDDLE[0] <= fraction <= MIDDLE[1] and distance <= ON_LINE:
        return True
    return None if OUTER[0] <= fraction <= OUTER[1] and distance <= OFF_LINE else False


DIRECTIONS: dict[str, Callable[[Item, Item], bool | None]] = {
    "left": lambda a, b: _is_offset(b.x - a.x),
    "right": lambda a, b: _is_offset(a.x - b.x),
    "above": lambda a, b: _is_offset(b.y - a.y),
    "below": lambda a, b: _is_offset(a.y - b.y),
}
PAIRWISE = {**DIRECTIONS, "inside": is_inside, "touching": is_touching}
"""The relations of one item to one other: whether it holds, None where that is ambiguous."""


def is_unambiguous_with(item: Item, others: tuple[Item, ...]) -> bool:
    """Whether no relation that the item takes part in, among these others, is ambiguous."""
    verdicts = itertools.chain(
        (holds(item, other) for holds in DIRECTIONS.values() for other in others),
        (
            is_between(*three)
            for a, b in itertools.combinations(others, 2)
            for three in ((item, a, b), (a, item, b), (b, a, item))
        ),
        (are_apart(item, other) for other in others),
    )
    return None not in verdicts


def is_unambiguous(scene: Scene) -> bool:
    """Whether no relation in the scene is ambiguous."""
    return all(is_unambiguous_with(item, scene.items[:index]) for index, item in enumerate(scene.items))
