from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from showtell.features.bottom_up import BottomUp
from tests.features.lively_bottom_up import lively_encoder

NOWHERE = "http://127.0.0.1:1/{repo_id}/resolve/{revision}/{filename}"  # nobody listens on port 1


@dataclass(frozen=True)
class HubCache:
    """A cache of the Hugging Face hub, laid out as huggingface_hub keeps it."""

    folder: Path

    def keep(self, repository: str, file: str, tensors: Mapping[str, Tensor]) -> Path:
        """Put a file of weights into it, as after a download."""
        commit = "0123456789abcdef0123456789abcdef01234567"
        kept = self.folder / f"models--{repository.replace('/', '--')}"
        snapshot = kept / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (kept / "refs").mkdir()
        (kept / "refs" / "main").write_text(commit)
        if file.endswith(".safetensors"):
            save_file(dict(tensors), snapshot / file)
        else:
            torch.save(tensors, snapshot / file)
        return snapshot / file


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubCache:
    """An empty cache of the hub, and no way to the hub itself."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", NOWHERE)
    return HubCache(tmp_path / "hub")


@pytest.fixture(scope="session")
def lively() -> BottomUp:
    """A detector of bottom-up attention at its full size with opinions; who changes it changes it back."""
    return lively_encoder()
