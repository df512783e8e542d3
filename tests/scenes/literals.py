"""Scenes as small literals, for tests."""

from showtell.scenes import Item, Scene
from showtell.scenes.relations import is_unambiguous_with

EXTENT = {"small": 20, "medium": 30, "big": 46}


def item(line: str) -> Item:
    """An item from "size pattern colour shape x y"."""
    size, pattern, colour, shape, x, y = line.split()
    return Item(shape, colour, size, pattern, int(x), int(y), EXTENT[size])


def scene(background: str, *lines: str) -> Scene:
    """A scene from its lines, the first drawn first."""
    return Scene(background, tuple(item(line) for line in lines))


def is_unambiguous(scene: Scene) -> bool:
    """Whether no relation in the scene is ambiguous."""
    return all(is_unambiguous_with(item, scene.items[:index]) for index, item in enumerate(scene.items))
