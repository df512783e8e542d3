"""Train, score and explain neural image captioners.

Public names are loaded on first use (PEP 562), so that `import showtell` is instant.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from showtell.cores import cpu_quota, usable_cores

# OpenMP's threads, which are torch's, spin while they wait: beside any other work on the machine training takes five
# times as long (docs/scaling.md). GNU's may spin for some microseconds here: to fall asleep at thousands of short waits
# costs a quarter of the time. OpenMP reads all this as torch is loaded, so that it is set here, first of all.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
if cpu_quota() < float("inf"):
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))

# The version of this package, as `showtell --version` prints it; pyproject.toml reads it here.
__version__ = "0.1.0"

# module: the public names in it
_NAMES = {
    "captioners": ("Captioner",),
    "captions": ("Attention", "Caption", "Word"),
    "datasets": ("CaptionDataset", "open_dataset"),
    "errors": (
        "CheckpointError", "DataError", "ExtensionError", "ImageError", "MissingDependencyError", "RecipeError",
        "ShowtellError", "TrainingError", "UsageError", "WeightsError",
    ),
    "evaluation": ("Evaluation", "evaluate"),
    "explanations": ("Explanation",),
    "scores": ("ScoreReport", "score"),
    "training": ("Recipe", "TrainingResult", "load_recipe", "train"),
}  # fmt: skip
_PUBLIC = {name: f"showtell.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_PUBLIC, "__version__"])

if TYPE_CHECKING:  # what editors and mypy see; a test holds it equal to the table
    from showtell.captioners import Captioner as Captioner
    from showtell.captions import Attention as Attention
    from showtell.captions import Caption as Caption
    from showtell.captions import Word as Word
    from showtell.datasets import CaptionDataset as CaptionDataset
    from showtell.datasets import open_dataset as open_dataset
    from showtell.errors import CheckpointError as CheckpointError
    from showtell.errors import DataError as DataError
    from showtell.errors import ExtensionError as ExtensionError
    from showtell.errors import ImageError as ImageError
    from showtell.errors import MissingDependencyError as MissingDependencyError
    from showtell.errors import RecipeError as RecipeError
    from showtell.errors import ShowtellError as ShowtellError
    from showtell.errors import TrainingError as TrainingError
    from showtell.errors import UsageError as UsageError
    from showtell.errors import WeightsError as WeightsError
    from showtell.evaluation import Evaluation as Evaluation
    from showtell.evaluation import evaluate as evaluate
    from showtell.explanations import Explanation as Explanation
    from showtell.scores import ScoreReport as ScoreReport
    from showtell.scores import score as score
    from showtell.training import Recipe as Recipe
    from showtell.training import TrainingResult as TrainingResult
    from showtell.training import load_recipe as load_recipe
    from showtell.training import train as train


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'showtell' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
