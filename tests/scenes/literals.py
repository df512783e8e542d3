"""Scenes as small literals, for tests."""

from __future__ import annotations

from showtell.scenes import Item, Scene
from showtell.scenes.world import EXTENTS


def item(line: str) -> Item:
    """An item from "size pattern colour shape x y"; each size takes the middle of its range."""
    size, pattern, colour, shape, x, y = line.split()
    return Item(shape, colour, size, pattern, int(x), int(y), sum(EXTENTS[size]) // 2)


def scene(background: str, *lines: str) -> Scene:
    """A scene from its lines, the first drawn first."""
    return Scene(background, tuple(item(line) for line in lines))
