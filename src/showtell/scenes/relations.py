"""Spatial relations between items, each a function of their positions that is True, False, or None where ambiguous.

With dx, dy the differences of the centres in units,

    left, right, above, below   True from 12 on, False up to 6 (and on the wrong side)
    touching                    the outlines cross or come within 1; False from 4 on, and for what lies inside
    inside                      the outline lies within the other one, at least 4 away from it; False where it
                                comes within 1, crosses it or lies outside
    between                     with t the position along the line between the two others (0 at one, 1 at the
                                other) and d the distance from it: True for t in [1/4, 3/4] and d <= 8,
                                False for t outside [0.15, 0.85] or d > 14

Only scenes without any ambiguous relation are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

from showtell.scenes.outlines import box, contains_point, do_cross, least_distance, outline
from showtell.scenes.world import Item

OFFSET, LEVEL = 12, 6  # difference of centres from which one item is beside the other, and up to which it is not
TOUCH, APART = 1.0, 4.0  # distance of outlines up to which they touch, and from which they do not
MIDDLE, OUTER = (0.25, 0.75), (0.15, 0.85)  # positions along a line that are between its ends, and may be
ON_LINE, OFF_LINE = 8.0, 14.0  # distance from that line up to which an item is between, and may be


@lru_cache(maxsize=16384)
def _contact(a: Item, b: Item) -> tuple[float, bool, bool]:
    """The distance between two outlines, as of `distance`, and whether each lies within the other."""
    left_a, top_a, width_a, height_a = box(a)
    left_b, top_b, width_b, height_b = box(b)
    x = max(left_b - left_a - width_a, left_a - left_b - width_b, 0.0)
    y = max(top_b - top_a - height_a, top_a - top_b - height_b, 0.0)
    apart = math.hypot(x, y)  # of their boxes; the outlines are at least as far apart
    if apart > APART:
        return apart, False, False
    outline_a, outline_b = outline(a), outline(b)
    if do_cross(outline_a, outline_b):
        return 0.0, False, False
    apart = min(least_distance(outline_a, outline_b), least_distance(outline_b, outline_a))
    return apart, contains_point(outline_b, outline_a[0]), contains_point(outline_a, outline_b[0])


def distance(a: Item, b: Item) -> float:
    """The distance between two outlines, in units; 0 where they cross. Beyond 4 it is a lower bound."""
    return _contact(a, b)[0]


def _is_offset(difference: int) -> bool | None:
    return True if difference >= OFFSET else False if difference <= LEVEL else None


def is_touching(a: Item, b: Item) -> bool | None:
    """Whether the outlines of two items cross or meet; None where that is ambiguous."""
    apart, _, _ = _contact(a, b)
    return True if apart <= TOUCH else False if apart >= APART else None


def is_inside(a: Item, b: Item) -> bool | None:
    """Whether the first item lies within the outline of the second; None where that is ambiguous."""
    apart, within, _ = _contact(a, b)
    if not within or apart <= TOUCH:
        return False
    return True if apart >= APART else None


def are_apart(a: Item, b: Item) -> bool | None:
    """Whether two items neither touch nor lie in each other; None where either is ambiguous."""
    apart, within, around = _contact(a, b)
    if apart <= TOUCH:
        return False
    return None if apart < APART else not (within or around)


def is_between(middle: Item, a: Item, b: Item) -> bool | None:
    """Whether the first item lies between the two others; None where that is ambiguous."""
    line, offset = (b.x - a.x, b.y - a.y), (middle.x - a.x, middle.y - a.y)
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
PAIRWISE = {**DIRECTIONS, "inside": is_inside, "touching": is_touching}  # the relations of one item to one other


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
