"""The outlines of shapes as polygons, and their geometry: box, area, distance, crossing."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from showtell.scenes.world import Item

Points = NDArray[np.float64]  # (points, 2)


def _star() -> list[tuple[float, float]]:
    angles = [(math.pi * k / 5 - math.pi / 2, 1.26 if k % 2 == 0 else 0.62) for k in range(10)]
    return [(radius * math.cos(angle), radius * math.sin(angle) + 0.09) for angle, radius in angles]


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
    arm, half = 1.05, 0.42  # the length of an arm, and half its width
    right = [(half, -arm), (half, -half), (arm, -half), (arm, half), (half, half), (half, arm)]
    return right + [(-x, -y) for x, y in right]


def _moon() -> list[tuple[float, float]]:
    # A disc less another one moved to the right: the outer arc, then the inner arc back.
    bite, radius, shift = 0.84, 1.1, 0.68
    x = (radius**2 - bite**2 + shift**2) / (2 * shift)
    outer = math.acos(x / radius)
    inner = math.atan2(math.sqrt(radius**2 - x**2), x - shift)
    there, back = np.linspace(outer, 2 * math.pi - outer, 24), np.linspace(2 * math.pi - inner, inner, 16)[1:-1]
    points = [(radius * math.cos(angle), radius * math.sin(angle)) for angle in there]
    points += [(shift + bite * math.cos(angle), bite * math.sin(angle)) for angle in back]
    return [(x + 0.25, y) for x, y in points]


# Each shape as a closed polygon around its centre, for an extent of 2 (a circle of radius 1).
OUTLINES: dict[str, Points] = {
    shape: np.array(points, dtype=np.float64)
    for shape, points in {
        "circle": [(math.cos(2 * math.pi * k / 32), math.sin(2 * math.pi * k / 32)) for k in range(32)],
        "square": [(-0.92, -0.92), (0.92, -0.92), (0.92, 0.92), (-0.92, 0.92)],
        "triangle": [(0.0, -1.05), (1.12, 0.95), (-1.12, 0.95)],
        "star": _star(),
        "heart": _heart(),
        "cross": _cross(),
        "diamond": [(0.0, -1.2), (1.0, 0.0), (0.0, 1.2), (-1.0, 0.0)],
        "moon": _moon(),
    }.items()
}
# Left, top, right and bottom of each outline, in the same units.
_BOUNDS = {shape: (*points.min(axis=0).tolist(), *points.max(axis=0).tolist()) for shape, points in OUTLINES.items()}


@lru_cache(maxsize=4096)
def outline(item: Item) -> Points:
    """The polygon of an item in units of the scene, (points, 2). Do not write into it."""
    return OUTLINES[item.shape] * (item.extent / 2) + (item.x, item.y)


def box(item: Item) -> tuple[float, float, float, float]:
    """Left edge, upper edge, width and height of the whole item, hidden parts included, in units."""
    radius = item.extent / 2
    left, top, right, bottom = _BOUNDS[item.shape]
    return item.x + radius * left, item.y + radius * top, radius * (right - left), radius * (bottom - top)


def area(item: Item) -> float:
    """The area of the whole item, hidden parts included, in square units (shoelace formula)."""
    x, y = outline(item).T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def _next_points(points: Points) -> Points:
    """For each point of a closed polygon the one after it: `np.roll(points, -1, axis=0)`, several times as fast."""
    return np.concatenate((points[1:], points[:1]))


def contains_point(polygon: Points, point: NDArray[np.float64]) -> bool:
    """Whether a point (2,) lies within a polygon: the even-odd rule, on a ray to the right."""
    (x1, y1), (x2, y2) = polygon.T, _next_points(polygon).T
    x, y = point
    spans = (y1 > y) != (y2 > y)
    slope = (x2 - x1) / np.where(y2 == y1, 1.0, y2 - y1)
    return bool((spans & (x < x1 + (y - y1) * slope)).sum() % 2)


def least_distance(points: Points, polygon: Points) -> float:
    """The least distance from any of the points (P, 2) to the sides of a polygon."""
    side, offset = _next_points(polygon) - polygon, points[:, None] - polygon
    fraction = np.clip((offset * side).sum(-1) / (side**2).sum(-1), 0.0, 1.0)
    return float(np.sqrt(((offset - fraction[..., None] * side) ** 2).sum(-1).min()))


def _orientations(points: Points, polygon: Points) -> Points:
    """The orientation of each point (P) against each side (S) of a polygon: positive, negative or 0, (P, S)."""
    side = _next_points(polygon) - polygon
    x, y = points[:, :1] - polygon[:, 0], points[:, 1:] - polygon[:, 1]
    return np.asarray(side[:, 0] * y - side[:, 1] * x)


def do_cross(a: Points, b: Points) -> bool:
    """Whether a side of one polygon crosses a side of the other; sides that only meet, or lie in one line, do not."""
    orientation_a, orientation_b = _orientations(a, b), _orientations(b, a)
    is_a_parted = orientation_a * _next_points(orientation_a) < 0
    is_b_parted = orientation_b * _next_points(orientation_b) < 0
    return bool((is_a_parted & is_b_parted.T).any())
