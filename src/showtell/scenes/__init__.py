"""Small drawn pictures with captions whose truth can be checked: the embedded dataset."""

from showtell.scenes.annotations import read_scenes
from showtell.scenes.captions import SceneCaption
from showtell.scenes.dataset import write_scenes
from showtell.scenes.world import BACKGROUNDS, COLOURS, PATTERNS, SHAPES, SIZES, Item, Scene

__all__ = [
    "BACKGROUNDS", "COLOURS", "PATTERNS", "SHAPES", "SIZES", "Item", "Scene", "SceneCaption", "read_scenes",
    "write_scenes",
]  # fmt: skip
