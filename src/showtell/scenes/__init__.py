"""Small drawn pictures with captions whose truth can be checked: the embedded dataset."""

from showtell.scenes.annotations import read_scenes
from showtell.scenes.captions import SceneCaption
from showtell.scenes.dataset import CAPTIONS, split_sizes, write_scenes
from showtell.scenes.lexicon import LANGUAGE_VERSION
from showtell.scenes.world import Item, Scene

__all__ = [
    "CAPTIONS",
    "LANGUAGE_VERSION",
    "Item",
    "Scene",
    "SceneCaption",
    "read_scenes",
    "split_sizes",
    "write_scenes",
]
