"""The world of scenes: what can be drawn, and which spatial relations hold between what is drawn.

A scene is a square of 96 x 96 units, x to the right and y downwards, on which one to four items lie, the later
ones over the earlier. An item is known by shape, colour, size and pattern, and by its place.

Every relation is a function of positions with a margin: it is True, False, or None in the border case that
people would quarrel about. With dx, dy the differences of the centres in units,

    left, right, above, below   True from 12 on, False up to 6 (and on the wrong side)
    touching                    the outlines cross or come within 1; False from 4 on
    inside                      the outline lies within the other one, at least 4 away from it; False where it
                                comes within 1, crosses it or lies outside
    between                     with t the place along the line between the two others (0 at one, 1 at the
                                other) and d the distance from it: True for t in [1/4, 3/4] and d <= 8,
                                False for t outside [0.15, 0.85] or d > 14

What lies inside another item does not touch it. `is_clear` says that a scene has no border case at all; only
such scenes are drawn.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

UNITS = 96  # the side of a scene

Shape = Literal["circle", "square", "triangle", "star", "heart", "cross", "diamond", "moon"]
Colour = Literal["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"]
Size = Literal["small", "medium", "big"]
Pattern = Literal["solid", "striped", "dotted"]
Background = Literal["white", "grey", "beige", "mint", "squared"]
Relation = Literal["left", "right", "above", "below", "inside", "touching", "between"]

SHAPES: tuple[Shape, ...] = ("circle", "square", "triangle", "star", "heart", "cross", "diamond", "moon")
COLOURS: tuple[Colour, ...] = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
SIZES: tuple[Size, ...] = ("small", "medium", "big")
PATTERNS: tuple[Pattern, ...] = ("solid", "striped", "dotted")
BACKGROUNDS: tuple[Background, ...] = ("white", "grey", "beige", "mint", "squared")

EXTENTS: dict[str, tuple[int, int]] = {"small": (20, 22), "medium": (30, 32), "big": (45, 49)}
"""Smallest and greatest extent of each size, in units; between two sizes there is room to tell them apart."""

HELD_OUT: frozenset[tuple[str, str]] = frozenset(
    {
        ("green", "circle"),
        ("pink", "square"),
        ("cyan", "triangle"),
        ("purple", "star"),
        ("orange", "heart"),
        ("yellow", "cross"),
        ("red", "diamond"),
        ("blue", "moon"),
    }
)
"""The colour-shape pairs kept for the compositional split: each colour and each shape loses one of its eight."""

CLEARLY_BESIDE, LEVEL = 12, 6
TOUCH, APART = 1.0, 4.0
MIDDLE, OUTER = (0.25, 0.75), (0.15, 0.85)
ON_LINE, OFF_LINE = 8.0, 14.0


@dataclass(frozen=True, slots=True)
class Item:
    """One drawn shape."""

    shape: str  # of SHAPES
    colour: str  # of COLOURS
    size: str  # of SIZES
    pattern: str  # of PATTERNS
    x: int  # centre, units from the left edge
    y: int  # centre, units from the upper edge
    extent: int  # diameter of the circle of this size, units; other shapes are scaled to look as large


@dataclass(frozen=True, slots=True)
class Scene:
    """What a picture shows; items later in the tuple are drawn over earlier ones."""

    background: str  # of BACKGROUNDS
    items: tuple[Item, ...]


def _ring(points: list[tuple[float, float]]) -> NDArray[np.float64]:
    return np.array(points, dtype=np.float64)


def _circle(radius: float = 1.0, steps: int = 32) -> list[tuple[float, float]]:
    turns = [2 * math.pi * k / steps for k in range(steps)]
    return [(radius * math.cos(turn), radius * math.sin(turn)) for turn in turns]


def _star() -> list[tuple[float, float]]:
    turns = [(math.pi * k / 5 - math.pi / 2, 1.26 if k % 2 == 0 else 0.62) for k in range(10)]
    return [(radius * math.cos(turn), radius * math.sin(turn) + 0.09) for turn, radius in turns]


def _heart() -> list[tuple[float, float]]:
    # The common heart curve (x = 16 sin^3 t), scaled to the unit circle and centred.
    points = []
    for k in range(32):
        t = 2 * math.pi * k / 32
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 15.5, -(y + 2.5) / 15.5))
    return points


def _cross() -> list[tuple[float, float]]:
    long, short = 1.05, 0.42
    corner = [(short, -long), (short, -short), (long, -short)]
    points = []
    for _ in range(4):
        points += corner
        corner = [(-y, x) for x, y in corner]
    return points


def _moon() -> list[tuple[float, float]]:
    # A disc less another one moved to the right: the outer arc, then the inner arc back.
    bite, radius, shift = 0.84, 1.1, 0.68
    x = (radius**2 - bite**2 + shift**2) / (2 * shift)
    outer = math.acos(x / radius)
    inner = math.atan2(math.sqrt(radius**2 - x**2), x - shift)
    points = [
        (radius * math.cos(turn), radius * math.sin(turn)) for turn in np.linspace(outer, 2 * math.pi - outer, 24)
    ]
    points += [
        (shift + bite * math.cos(turn), bite * math.sin(turn))
        for turn in np.linspace(2 * math.pi - inner, inner, 16)[1:-1]
    ]
    return [(x + 0.25, y) for x, y in points]


OUTLINES: dict[str, NDArray[np.float64]] = {
    "circle": _ring(_circle()),
    "square": _ring([(-0.92, -0.92), (0.92, -0.92), (0.92, 0.92), (-0.92, 0.92)]),
    "triangle": _ring([(0.0, -1.05), (1.12, 0.95), (-1.12, 0.95)]),
    "star": _ring(_star()),
    "heart": _ring(_heart()),
    "cross": _ring(_cross()),
    "diamond": _ring([(0.0, -1.2), (1.0, 0.0), (0.0, 1.2), (-1.0, 0.0)]),
    "moon": _ring(_moon()),
}
"""Each shape as a closed polygon around its centre, (points, 2), for an extent of 2 (a circle of radius 1)."""

_EDGES = {shape: (*points.min(axis=0).tolist(), *points.max(axis=0).tolist()) for shape, points in OUTLINES.items()}
# left, top, right, bottom of each outline, in the same measure


@lru_cache(maxsize=4096)
def outline(item: Item) -> NDArray[np.float64]:
    """The polygon of an item in units of the scene, (points, 2). Do not write into it."""
    return OUTLINES[item.shape] * (item.extent / 2) + (item.x, item.y)


def box(item: Item) -> tuple[float, float, float, float]:
    """Left edge, upper edge, width and height of the whole item, hidden parts included, in units."""
    radius = item.extent / 2
    left, top, right, bottom = _EDGES[item.shape]
    return item.x + radius * left, item.y + radius * top, radius * (right - left), radius * (bottom - top)


def area(item: Item) -> float:
    """The area of the whole item, hidden parts included, in square units (shoelace formula)."""
    x, y = outline(item).T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _following(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each point of a closed polygon the one after it: `np.roll(points, -1, axis=0)`, several times as fast."""
    return np.concatenate((points[1:], points[:1]))


def _within(point: NDArray[np.float64], polygon: NDArray[np.float64]) -> bool:
    """Whether a point (2,) lies within a polygon: the even-odd rule, on a ray to the right."""
    (x1, y1), (x2, y2) = polygon.T, _following(polygon).T
    x, y = point
    spans = (y1 > y) != (y2 > y)
    slope = (x2 - x1) / np.where(y2 == y1, 1.0, y2 - y1)
    return bool((spans & (x < x1 + (y - y1) * slope)).sum() % 2)


def _nearest(points: NDArray[np.float64], polygon: NDArray[np.float64]) -> float:
    """The least distance from any of the points (P, 2) to the sides of a polygon."""
    start, side = polygon, _following(polygon) - polygon
    offset = points[:, None] - start
    along = np.clip((offset * side).sum(-1) / (side**2).sum(-1), 0.0, 1.0)
    return float(np.sqrt(((offset - along[..., None] * side) ** 2).sum(-1).min()))


def _sides_of(points: NDArray[np.float64], polygon: NDArray[np.float64]) -> NDArray[np.float64]:
    """On which hand of each side (S) of a polygon each point (P) lies: positive, negative or 0, (P, S)."""
    start, side = polygon, _following(polygon) - polygon
    x, y = points[:, :1] - start[:, 0], points[:, 1:] - start[:, 1]
    return np.asarray(side[:, 0] * y - side[:, 1] * x)


def _cross_each_other(a: NDArray[np.float64], b: NDArray[np.float64]) -> bool:
    """Whether any side of one polygon crosses a side of the other: each has its ends on both hands of the other.

    Sides that only meet, or lie in one line, do not cross; their distance says whether they meet.
    """
    hand_a, hand_b = _sides_of(a, b), _sides_of(b, a)
    a_parted = hand_a * _following(hand_a) < 0
    b_parted = hand_b * _following(hand_b) < 0
    return bool((a_parted & b_parted.T).any())


def _gap(a: Item, b: Item) -> float:
    """The distance between the boxes of two items: their outlines are at least as far apart."""
    left_a, top_a, width_a, height_a = box(a)
    left_b, top_b, width_b, height_b = box(b)
    x = max(left_b - left_a - width_a, left_a - left_b - width_b, 0.0)
    y = max(top_b - top_a - height_a, top_a - top_b - height_b, 0.0)
    return math.hypot(x, y)


def _box_within(a: Item, b: Item) -> bool:
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
    apart = _gap(a, b)
    if apart > APART:
        return apart, False, False
    one, other = outline(a), outline(b)
    if _cross_each_other(one, other):
        return 0.0, False, False
    within = _box_within(a, b) and _within(one[0], other)
    around = _box_within(b, a) and _within(other[0], one)
    return min(_nearest(one, other), _nearest(other, one)), within, around


def distance(a: Item, b: Item) -> float:
    """How far apart two outlines are, in units; 0 where they cross. Beyond 4 it is a lower bound."""
    return _contact(a, b)[0]


def _beside(difference: int) -> bool | None:
    if difference >= CLEARLY_BESIDE:
        return True
    return False if difference <= LEVEL else None


def is_left(a: Item, b: Item) -> bool | None:
    """Whether the first item is to the left of the second; None in a border case."""
    return _beside(b.x - a.x)


def is_right(a: Item, b: Item) -> bool | None:
    """Whether the first item is to the right of the second; None in a border case."""
    return _beside(a.x - b.x)


def is_above(a: Item, b: Item) -> bool | None:
    """Whether the first item is above the second; None in a border case."""
    return _beside(b.y - a.y)


def is_below(a: Item, b: Item) -> bool | None:
    """Whether the first item is below the second; None in a border case."""
    return _beside(a.y - b.y)


def is_touching(a: Item, b: Item) -> bool | None:
    """Whether the outlines of two items cross or meet; None in a border case."""
    apart, _, _ = _contact(a, b)
    if apart <= TOUCH:
        return True
    return False if apart >= APART else None


def is_inside(a: Item, b: Item) -> bool | None:
    """Whether the first item lies within the outline of the second; None in a border case."""
    if _gap(a, b) > 0:
        return False
    apart, within, _ = _contact(a, b)
    if not within or apart <= TOUCH:
        return False
    return True if apart >= APART else None


def lies_apart(a: Item, b: Item) -> bool | None:
    """Whether two items neither touch nor lie in each other; None in a border case of either."""
    apart, within, around = _contact(a, b)
    if apart <= TOUCH:
        return False
    if apart < APART:
        return None
    return not (within or around)


def is_between(middle: Item, a: Item, b: Item) -> bool | None:
    """Whether the first item lies between the two others; None in a border case."""
    line = (b.x - a.x, b.y - a.y)
    offset = (middle.x - a.x, middle.y - a.y)
    length = math.hypot(*line)
    if length == 0:
        return False
    place = (offset[0] * line[0] + offset[1] * line[1]) / length**2
    distance = abs(offset[0] * line[1] - offset[1] * line[0]) / length
    if MIDDLE[0] <= place <= MIDDLE[1] and distance <= ON_LINE:
        return True
    return None if OUTER[0] <= place <= OUTER[1] and distance <= OFF_LINE else False


PAIRWISE = {
    "left": is_left,
    "right": is_right,
    "above": is_above,
    "below": is_below,
    "inside": is_inside,
    "touching": is_touching,
}
"""The relations of one item to one other."""


def is_clear_with(item: Item, others: tuple[Item, ...]) -> bool:
    """Whether no relation that the item takes part in, among these others, is a border case."""
    for a, b in itertools.chain(((item, other) for other in others), ((other, item) for other in others)):
        if is_left(a, b) is None or is_above(a, b) is None:
            return False
    for a, b in itertools.combinations(others, 2):
        if is_between(item, a, b) is None or is_between(a, item, b) is None or is_between(b, a, item) is None:
            return False
    return all(lies_apart(item, other) is not None for other in others)


def is_clear(scene: Scene) -> bool:
    """Whether no relation in the scene is a border case."""
    return all(is_clear_with(item, scene.items[:place]) for place, item in enumerate(scene.items))
