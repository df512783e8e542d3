"""timm and torchvision, imported without torch's compiler, which is most of the time that `import timm` takes.

torchvision's `ops/roi_align.py` imports `torch._dynamo` for a function that it calls under deterministic algorithms,
and timm marks a generator that the compiler shall leave alone. While they are imported a stand-in is in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_compiler() -> Iterator[None]:
    """Inside the block `torch._dynamo` has nothing but what these imports need of it.

    >>> with without_compiler():
    ...     import timm
    """
    package, utils = "torch._dynamo", "torch._dynamo.utils"
    if package in sys.modules:
        yield
        return
    compiler, stand_in = ModuleType(package), ModuleType(utils)
    compiler.disable = lambda function, *options, **more: function  # type: ignore[attr-defined]
    stand_in.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    sys.modules |= {package: compiler, utils: stand_in}
    try:
        yield
    finally:
        del sys.modules[package], sys.modules[utils]


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return bool(is_compile_supported(device_type))
