"""timm and torchvision, imported without what nothing here uses: torch's compiler, and torchvision's own models.

torchvision's `ops/roi_align.py` imports `torch._dynamo` for a function that it calls under deterministic algorithms,
and timm marks a generator that the compiler shall leave alone, and imports torchvision's models for the tracing of
`features_only` alone. Stand-ins replace both during the import; who asks for them later gets them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_MODELS, _TRACING = "torchvision.models", "torchvision.models.feature_extraction"


def quick_import(name: str) -> Any:
    """A module of timm or torchvision, such as "torchvision.ops"; both have no types."""
    package, utils = "torch._dynamo", "torch._dynamo.utils"
    if name in sys.modules:
        return sys.modules[name]
    stand_ins: dict[str, ModuleType] = {}
    if package not in sys.modules:
        stand_ins |= {package: ModuleType(package), utils: ModuleType(utils)}
        stand_ins[package].disable = lambda function, *options, **more: function  # type: ignore[attr-defined]
        stand_ins[utils].is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    is_quick = "torchvision" not in sys.modules and not name.startswith(_MODELS)
    if is_quick:
        stand_ins |= {_MODELS: ModuleType(_MODELS), _TRACING: ModuleType(_TRACING)}
        for function in ("create_feature_extractor", "get_graph_node_names"):
            setattr(stand_ins[_TRACING], function, _import_when_called(function))
    sys.modules |= stand_ins
    try:
        return importlib.import_module(name)
    finally:
        for own in stand_ins:
            del sys.modules[own]
        if is_quick and (torchvision := sys.modules.get("torchvision")):
            vars(torchvision).pop("models", None)
            torchvision.__getattr__ = _submodule  # type: ignore[method-assign]


def _submodule(name: str) -> ModuleType:
    """`torchvision.models`, imported when somebody asks for it."""
    if name != "models":
        raise AttributeError(f"module 'torchvision' has no attribute {name!r}")
    return importlib.import_module(_MODELS)


def _import_when_called(name: str) -> Any:
    return lambda *args, **options: getattr(importlib.import_module(_TRACING), name)(*args, **options)


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return bool(is_compile_supported(device_type))
