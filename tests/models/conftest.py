"""Every test of a model runs with the compiled kernels, with those of torch's operators, and with their plain forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from showtell.models.kernels import compiled, compiled_kernels, plain_kernels


@pytest.fixture(autouse=True, params=["compiled", "torch", "plain"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """The form that runs, by the parameter."""
    if request.param == "compiled" and (reason := compiled.why_not()):
        pytest.skip(f"no compiled kernels: {reason}")
    with plain_kernels(request.param == "plain"), compiled_kernels(request.param == "compiled"):
        yield
