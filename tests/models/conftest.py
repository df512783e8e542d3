"""Every test of a model runs with the fast and with the plain form of the kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from showtell.models.kernels import plain_kernels


@pytest.fixture(autouse=True, params=["fast", "plain"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """The form that runs, by the parameter."""
    with plain_kernels(request.param == "plain"):
        yield
