"""timm and torchvision, imported without torch's compiler, which would be half of the time.

torchvision's `ops/roi_align.py` imports `torch._dynamo` for a function that it calls under deterministic algorithms,
and timm marks a generator that the compiler shall leave alone. A stand-in replaces the compiler during the import.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def quick_import(name: str) -> Any:
    """A module of timm or torchvision, such as "torchvision.ops"; both have no types."""
    package, utils = "torch._dynamo", "torch._dynamo.utils"
    if name in sys.modules or package in sys.modules:
        return importlib.import_module(name)
    compiler, stand_in = ModuleType(package), ModuleType(utils)
    compiler.disable = lambda function, *options, **more: function  # type: ignore[attr-defined]
    stand_in.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    sys.modules |= {package: compiler, utils: stand_in}
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules[package], sys.modules[utils]


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return bool(is_compile_supported(device_type))
