"""The switch between the fast kernels and their plain forms."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator

_is_plain = contextvars.ContextVar("is_plain", default=os.environ.get("SHOWTELL_KERNELS") == "plain")


def is_plain() -> bool:
    """Whether the plain forms run."""
    return _is_plain.get()


@contextlib.contextmanager
def plain_kernels(enabled: bool = True) -> Iterator[None]:
    """Inside the block the plain forms run, or, with False, the fast ones."""
    token = _is_plain.set(enabled)
    try:
        yield
    finally:
        _is_plain.reset(token)
