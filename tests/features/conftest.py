from pathlib import Path

import pytest

from showtell.features.bottom_up import BottomUp
from tests.features.lively_bottom_up import lively_encoder

NOWHERE = "http://127.0.0.1:1/{repo_id}/resolve/{revision}/{filename}"  # nobody listens on port 1


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, and no way to the hub itself."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", NOWHERE)
    return tmp_path / "hub"


@pytest.fixture(scope="session")
def lively() -> BottomUp:
    """A detector of bottom-up attention at its full size with opinions; who changes it changes it back."""
    return lively_encoder()
