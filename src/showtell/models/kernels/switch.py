"""The switches between the compiled, the fast and the plain kernels."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator

_form = os.environ.get("SHOWTELL_KERNELS")
_is_plain = contextvars.ContextVar("is_plain", default=_form == "plain")
_may_compile = contextvars.ContextVar("may_compile", default=_form != "torch")


def is_plain() -> bool:
    """Whether the plain forms run."""
    return _is_plain.get()


def may_compile() -> bool:
    """Whether compiled forms run where there is a compiler."""
    return _may_compile.get() and not _is_plain.get()


@contextlib.contextmanager
def plain_kernels(enabled: bool = True) -> Iterator[None]:
    """Inside the block the plain forms run, or, with False, the fast ones."""
    with _inside(_is_plain, enabled):
        yield


@contextlib.contextmanager
def compiled_kernels(enabled: bool = True) -> Iterator[None]:
    """Inside the block compiled forms run where there is a compiler, or, with False, those of torch's operators."""
    with _inside(_may_compile, enabled):
        yield


@contextlib.contextmanager
def _inside(switch: contextvars.ContextVar[bool], value: bool) -> Iterator[None]:
    token = switch.set(value)
    try:
        yield
    finally:
        switch.reset(token)
