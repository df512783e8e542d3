"""The world of scenes: what can be drawn.

A scene is a square of 96 x 96 units, x to the right and y downwards, on which one to four items lie, the later
ones over the earlier. An item is known by its shape, colour, size, pattern and position.
"""

from __future__ import annotations

from dataclasses import dataclass

UNITS = 96  # the side of a scene

SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "diamond", "moon")  # of things
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")  # of things
SIZES = ("small", "medium", "big")  # of things
PATTERNS = ("solid", "striped", "dotted")  # of the fill of things
BACKGROUNDS = ("white", "grey", "beige", "mint", "squared")  # of pictures

# Smallest and greatest extent of each size, in units; between two sizes there is room to tell them apart.
EXTENTS: dict[str, tuple[int, int]] = {"small": (20, 22), "medium": (30, 32), "big": (45, 49)}

# The colour-shape pairs kept for the compositional split: each colour and each shape loses one of its eight.
HELD_OUT = frozenset({
    ("green", "circle"), ("pink", "square"), ("cyan", "triangle"), ("purple", "star"),
    ("orange", "heart"), ("yellow", "cross"), ("red", "diamond"), ("blue", "moon"),
})  # fmt: skip


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
