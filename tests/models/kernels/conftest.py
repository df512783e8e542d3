"""The tests of the kernels say themselves which form runs."""

from collections.abc import Iterator

import pytest

from showtell.models.kernels import onednn, plain_kernels


@pytest.fixture(autouse=True)
def fast_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The fast form, for small weights too."""
    monkeypatch.setattr(onednn, "MIN_PACKED_NUMEL", 1)
    with plain_kernels(False):
        yield
