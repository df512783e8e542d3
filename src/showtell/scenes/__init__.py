"""Small drawn pictures with captions whose truth can be checked: the embedded dataset."""

from showtell.scenes.dataset import read_scenes, write_scenes
from showtell.scenes.language import LANGUAGE_VERSION, Caption
from showtell.scenes.world import Item, Scene

__all__ = ["LANGUAGE_VERSION", "Caption", "Item", "Scene", "read_scenes", "write_scenes"]
