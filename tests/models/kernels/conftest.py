"""The tests of the kernels say themselves which form runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from showtell.models.kernels import plain_kernels


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """The fast form."""
    with plain_kernels(False):
        yield
