"""The reference's own scores, from shared/data/metrics (see metrics.md there for how they were made)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from showtell.scores import base


@dataclass(frozen=True)
class Case:
    """Predictions and references as text and as the reference tokenized them, and the reference's scores."""

    text: dict[str, Any]
    tokenized: dict[str, Any]
    oracle: dict[str, Any]


@pytest.fixture(scope="session", params=["flickr8k", "odd_inputs"])
def case(request: pytest.FixtureRequest, shared_data: Path) -> Case:
    def read(kind: str) -> dict[str, Any]:
        return json.loads((shared_data / "metrics" / f"{kind}_{request.param}.json").read_text())

    return Case(read("case"), read("tokenized"), read("oracle"))


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take captions as the reference's tokenizer wrote them: words between single spaces."""
    monkeypatch.setattr(base, "tokenize", lambda text: text.split(" ") if text else [])
