"""The world of scenes: what can be drawn.

A scene is a square of 96 x 96 units, x to the right and y downwards, on which one to four items lie, the later
ones over the earlier. An item is known by its shape, colour, size, pattern and position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNITS = 96  # the side of a scene

Shape = Literal["circle", "square", "triangle", "star", "heart", "cross", "diamond", "moon"]
Colour = Literal["red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink"]
Size = Literal["small", "medium", "big"]
Pattern = Literal["solid", "striped", "dotted"]
Background = Literal["white", "grey", "beige", "mint", "squared"]

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
