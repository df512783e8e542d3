"""Train, score and explain neural image captioners.

Public names are loaded on first use (PEP 562), so that `import showtell` is instant.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name: the module it lives in
_PUBLIC = {
    "Captioner": "showtell.captioner",
    "explain": "showtell.explanations",
    "open_dataset": "showtell.datasets",
    "score": "showtell.scores",
    "train": "showtell.training",
}

__all__ = ["Captioner", "__version__", "explain", "open_dataset", "score", "train"]  # loaded on first use


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'showtell' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
