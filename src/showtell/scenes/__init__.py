"""Small drawn pictures with captions whose truth can be checked: the embedded dataset."""

from showtell.scenes.dataset import CAPTIONS, read_scenes, split_sizes, write_scenes
from showtell.scenes.language import LANGUAGE_VERSION, Caption
from showtell.scenes.world import Item, Scene

__all__ = [
    "CAPTIONS",
    "LANGUAGE_VERSION",
    "Caption",
    "Item",
    "Scene",
    "read_scenes",
    "split_sizes",
    "write_scenes",
]
