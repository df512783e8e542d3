from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from showtell.serving.app import create_app
from showtell.serving.settings import ServeSettings
from tests.serving.fakes import FakeEngine

PNG = {"Content-Type": "image/png"}
LOCAL = "http://127.0.0.1:7860"


def client_of(
    engine: FakeEngine | None = None, address: str = LOCAL, *, raises: bool = True, **settings: Any
) -> TestClient:
    """A client of an app over an engine."""
    app = create_app(engine or FakeEngine(), ServeSettings(**settings))
    return TestClient(app, address, follow_redirects=False, raise_server_exceptions=raises)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine) -> Iterator[TestClient]:
    """Of an app over the engine, which takes photos of two megabytes."""
    with client_of(engine, max_body=2_000_000) as client:
        yield client
