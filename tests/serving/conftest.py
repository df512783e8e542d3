from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from showtell.serving.app import create_app
from showtell.serving.settings import ServeSettings
from tests.serving.fakes import FakeEngine

PNG = {"Content-Type": "image/png"}
LOCAL = "http://127.0.0.1:7860"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine) -> Iterator[TestClient]:
    """Of an app over the engine, which takes photos of two megabytes."""
    with TestClient(create_app(engine, ServeSettings(max_body=2_000_000)), base_url=LOCAL) as client:
        yield client
