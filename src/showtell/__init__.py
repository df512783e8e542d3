"""Train, score and explain neural image captioners.

Public names are loaded on first use (PEP 562), so that `import showtell` is instant.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name: the module it lives in
_PUBLIC = {
    "Attention": "showtell.captions",
    "Caption": "showtell.captions",
    "CaptionDataset": "showtell.datasets",
    "Captioner": "showtell.captioner",
    "CheckpointError": "showtell.errors",
    "DataError": "showtell.errors",
    "Evaluation": "showtell.evaluation",
    "Explanation": "showtell.explanations",
    "ExtensionError": "showtell.errors",
    "ImageError": "showtell.errors",
    "MissingDependencyError": "showtell.errors",
    "Recipe": "showtell.training",
    "RecipeError": "showtell.errors",
    "ScoreReport": "showtell.scores",
    "ShowtellError": "showtell.errors",
    "TrainingError": "showtell.errors",
    "TrainingResult": "showtell.training",
    "UsageError": "showtell.errors",
    "WeightsError": "showtell.errors",
    "Word": "showtell.captions",
    "evaluate": "showtell.evaluation",
    "explain": "showtell.explanations",
    "load_recipe": "showtell.training",
    "open_dataset": "showtell.datasets",
    "score": "showtell.scores",
    "train": "showtell.training",
}

__all__ = sorted([*_PUBLIC, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'showtell' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
