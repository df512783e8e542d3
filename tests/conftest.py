"""Shared fixtures. Real data is found through SHOWTELL_SHARED (default ../shared); tests skip aloud without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data: coco-mini/, flickr8k/, metrics/."""
    folder = Path(os.environ.get("SHOWTELL_SHARED", ROOT.parent / "shared")) / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set SHOWTELL_SHARED to the folder that holds data/")
    return folder
