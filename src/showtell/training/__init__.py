"""Training: recipes and the one loop."""

from __future__ import annotations

from showtell.training.loop import TrainingResult, train
from showtell.training.recipe import Recipe
from showtell.training.recipe_checks import make_recipe
from showtell.training.recipe_loading import load_recipe

__all__ = ["Recipe", "TrainingResult", "load_recipe", "make_recipe", "train"]
