"""timm and torchvision, imported without what nothing here uses: their other models, and torch's compiler.

timm imports all of its 90 model files to make one model, and readers of datasets; torchvision its own models. Their
packages therefore run their `__init__` when somebody asks for what it makes, and not before. timm and torchvision's
`ops/roi_align.py` also import `torch._dynamo`, to mark what nothing here compiles; a stand-in takes its place.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_LATE = ("timm", "timm.models", "timm.data", "torchvision", "torchvision.models")


def quick_import(name: str) -> Any:
    """A module of timm or torchvision, such as "torchvision.ops"; both have no types."""
    if name in sys.modules:
        return sys.modules[name]
    compiler, utils = "torch._dynamo", "torch._dynamo.utils"
    stand_ins: dict[str, ModuleType] = {}
    if compiler not in sys.modules:
        stand_ins = {compiler: ModuleType(compiler), utils: ModuleType(utils)}
        stand_ins[compiler].disable = lambda function, *options, **more: function  # type: ignore[attr-defined]
        asked_later = lambda device: importlib.import_module(utils).is_compile_supported(device)  # noqa: E731
        stand_ins[utils].is_compile_supported = asked_later  # type: ignore[attr-defined]
    sys.modules |= stand_ins
    try:
        for package in _LATE:
            if package not in sys.modules:  # as where all of timm or torchvision is imported
                _add_late(package)
        return importlib.import_module(name)
    finally:
        for own in stand_ins:
            del sys.modules[own]


def knows_backbone(name: str) -> bool:
    """Whether timm has a backbone; of its model files the one that makes it is imported, where there is one."""
    registry = quick_import("timm.models._registry")
    if not registry.is_model(name):
        for path in (Path(quick_import("timm").__path__[0]) / "models").glob("*.py"):
            if f"\ndef {name}(" in path.read_text(encoding="utf-8"):
                quick_import(f"timm.models.{path.stem}")
    return registry.is_model(name) or bool(quick_import("timm").is_model(name))  # of all files, and names of old


class _Late(ModuleType):
    """A package whose `__init__` runs at the first name that it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None and self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _add_late(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None, "both are installed with showtell"
    sys.modules[package] = module = module_from_spec(spec)
    module.__class__ = _Late
    parent, _, own = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)
    if package in ("timm", "torchvision"):  # what their own modules ask of them
        module.__version__ = importlib.import_module(f"{package}.version").__version__  # type: ignore[attr-defined]
    if package == "timm.data":
        constants = vars(importlib.import_module("timm.data.constants"))
        vars(module).update({name: value for name, value in constants.items() if name.isupper()})
