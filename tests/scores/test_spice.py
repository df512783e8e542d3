"""The adapter to SPICE, on a program that stands in for it."""

import os
import sys
from pathlib import Path

import pytest

import showtell
from showtell.scores import spice

# writes as the "f" of an image the share of its words that are in the first reference
STAND_IN = f"""#!{sys.executable}
import json, sys
entries = json.load(open(sys.argv[4]))
made = sys.argv[sys.argv.index("-out") + 1]
def f(entry):
    words, known = entry["test"].split(), entry["refs"][0].split()
    return sum(word in known for word in words) / len(words)
results = [{{"image_id": entry["image_id"], "scores": {{"All": {{"f": f(entry)}}}}}} for entry in entries]
json.dump(results[::-1], open(made, "w"))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, and a java that is the stand-in."""
    pytest.importorskip("pycocoevalcap", reason="pycocoevalcap is not installed")
    java = tmp_path / "java"
    java.write_text(STAND_IN)
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) + os.pathsep + os.environ["PATH"])
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(spice, "_MODELS", "spice.py")
    return java


def test_spice_and_spider_and_a_program_that_fails(program: Path) -> None:
    report = showtell.score(["a dog", "a x"], [["a dog"], ["a cat"]], metrics=["spice", "cider"])
    assert [report.per_image[image]["spice"] for image in "01"] == [1.0, 0.5]
    assert report.scores["spice"] == pytest.approx(0.75)
    assert report.scores["spider"] == pytest.approx((0.75 + report.scores["cider"]) / 2)
    assert "spice:1.0" in report.signatures["spice"]
    program.write_text("#!/bin/sh\necho 'out of memory' >&2\nexit 3\n")
    report = showtell.score(["a dog"], [["a dog"]], metrics=["spice", "rouge_l"])
    assert report.scores == {"spice": None, "spider": None, "rouge_l": 1.0}
    assert report.skipped["spice"] == "SPICE stopped with status 3: out of memory"


def test_what_is_missing_is_one_sentence_that_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pycocoevalcap", reason="pycocoevalcap is not installed")
    monkeypatch.setattr(spice, "_MODELS", "lib/no-such-models.jar")
    download = "SPICE needs the CoreNLP 3.6.0 models; download them (400 MB) with python"
    for java, sentence in (("/usr/bin/java", download), (None, "SPICE needs Java 8 or later")):
        monkeypatch.setattr(spice.shutil, "which", lambda name, java=java: java)
        report = showtell.score(["a dog"], [["a dog"]], metrics=["spice"])
        assert report.skipped["spice"].startswith(sentence)
