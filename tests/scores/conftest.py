"""The reference's own scores, from shared/data/metrics (see metrics.md there for how they were made)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from showtell.scores import base


@dataclass(frozen=True)
class Case:
    """Predictions and references as the reference tokenized them, and the reference's scores."""

    tokenized: dict[str, Any]
    oracle: dict[str, Any]


@pytest.fixture(scope="session", params=["flickr8k", "odd_inputs"])
def case(request: pytest.FixtureRequest, shared_data: Path) -> Case:
    files = (shared_data / "metrics" / f"{kind}_{request.param}.json" for kind in ("tokenized", "oracle"))
    return Case(*(json.loads(file.read_text()) for file in files))


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take captions as the reference's tokenizer wrote them: words between single spaces."""
    monkeypatch.setattr(base, "tokenize", lambda text: text.split(" ") if text else [])
