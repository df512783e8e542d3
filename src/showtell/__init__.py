"""Train, score and explain neural image captioners.

Public names are loaded on first use (PEP 562), so that `import showtell` is instant. It changes nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The version of this package, as `showtell --version` prints it; pyproject.toml reads it here.
__version__ = "0.1.0"

# module: the public names in it, in the order in which people need them, which is that of docs/api/index.md
_NAMES: dict[str, tuple[str, ...]] = {
    "captioners": ("Captioner",),
    "captions": ("Caption", "Word", "Attention"),
    "explanations": ("Explanation",),
    "hub": ("PHOTOS",),
    "datasets": ("open_dataset", "CaptionDataset", "CaptionRecord"),
    "evaluation": ("evaluate", "Evaluation"),
    "scores": ("score", "ScoreReport", "list_metrics", "compare", "ComparisonTable"),
    "recipes": ("list_recipes",),
    "training": ("train", "TrainingResult", "load_recipe", "Recipe"),
    "models": ("list_models", "create_model", "Decoder"),
    "types": ("Features",),
    "text.vocabulary": ("Vocabulary",),
    "decoding_config": ("DecodingConfig",),
    "errors": (
        "ShowtellError", "UsageError", "DataError", "ImageError", "CheckpointError", "RecipeError", "TrainingError",
        "WeightsError", "ExtensionError", "MissingDependencyError",
    ),
}  # fmt: skip
_PUBLIC = {name: f"showtell.{module}" for module, names in _NAMES.items() for name in names}

__all__ = [*_PUBLIC, "__version__"]

if TYPE_CHECKING:  # what editors and mypy see; a test holds it equal to the table
    # isort: off
    from showtell.captioners import Captioner as Captioner
    from showtell.captions import Attention as Attention, Caption as Caption, Word as Word
    from showtell.datasets import CaptionDataset as CaptionDataset, CaptionRecord as CaptionRecord
    from showtell.datasets import open_dataset as open_dataset
    from showtell.decoding_config import DecodingConfig as DecodingConfig
    from showtell.errors import CheckpointError as CheckpointError, DataError as DataError
    from showtell.errors import ExtensionError as ExtensionError, ImageError as ImageError
    from showtell.errors import MissingDependencyError as MissingDependencyError, RecipeError as RecipeError
    from showtell.errors import ShowtellError as ShowtellError, TrainingError as TrainingError, UsageError as UsageError
    from showtell.errors import WeightsError as WeightsError
    from showtell.evaluation import Evaluation as Evaluation, evaluate as evaluate
    from showtell.explanations import Explanation as Explanation
    from showtell.hub import PHOTOS as PHOTOS
    from showtell.models import Decoder as Decoder, create_model as create_model, list_models as list_models
    from showtell.recipes import list_recipes as list_recipes
    from showtell.scores import ComparisonTable as ComparisonTable, ScoreReport as ScoreReport, compare as compare
    from showtell.scores import list_metrics as list_metrics, score as score
    from showtell.text.vocabulary import Vocabulary as Vocabulary
    from showtell.training import Recipe as Recipe, TrainingResult as TrainingResult, load_recipe as load_recipe
    from showtell.training import train as train
    from showtell.types import Features as Features


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'showtell' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
