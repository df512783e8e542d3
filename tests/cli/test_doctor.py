"""`showtell doctor`: what is installed, and what is missing for what."""

import importlib.metadata

import pytest

from showtell.cli import doctor
from tests.cli.test_caption import Captured, as_json, run


def test_what_is_missing_is_told_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    version = doctor._version
    versions = {"snowballstemmer": "3.0", "timm": "0.0.1"}
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name) or version(name))
    status, out, err = run(capsys, "doctor")
    assert (status, err) == (0, "") and out.startswith("python: 3.") and "meteor needs snowballstemmer" in out
    content = as_json(capsys, "doctor")
    missing = {sentence.partition(" ")[0]: sentence for sentence in content["missing"]}
    assert content["torch"] == importlib.metadata.version("torch")
    assert missing["meteor"].endswith('pip install "snowballstemmer<3,>=2.2"')
    assert missing["showtell"].startswith("showtell needs timm")
