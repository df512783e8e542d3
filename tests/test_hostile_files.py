"""Files that were made to do harm: nothing in them runs, each has its sentence, and none takes much memory or time."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hostile_files import CODE, HARMLESS, PICKLES, TARGET, TORCH_FILES

REPOSITORY = Path(__file__).resolve().parents[1]
ALL = {**PICKLES, **TORCH_FILES}
# What reading needs to do: mapping the file, and what a module that is first used meanwhile brings along.
INNOCENT = {"mmap.__new__"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    makers = [*(make for make, _ in ALL.values()), *HARMLESS.values()]
    for number, make in enumerate(makers):
        (folder / f"{number:03}.pth").write_bytes(make())
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """What came of each file, in a process that may take little memory."""
    command = [sys.executable, "-m", "tests.hostile_files", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = [*ALL, *HARMLESS]
    return {names[int(Path(name).stem)]: result for name, result in json.loads(done.stdout).items()}


@pytest.mark.parametrize("name", ALL)
def test_a_hostile_file_has_its_sentence(results: dict[str, Any], name: str) -> None:
    answer = results[name]["answer"]
    assert re.search(ALL[name][1], answer or ""), answer
    assert re.match(r"\S+\d{3}\.pth ", answer), "the sentence begins with the file"
    assert answer.endswith(".") and len(answer) < 600


@pytest.mark.parametrize("name", HARMLESS)
def test_what_cannot_be_told_from_data_is_data(results: dict[str, Any], name: str) -> None:
    """It is read, and then there are no weights in it."""
    answer = results[name]["answer"]
    assert "there are no named tensors in it" in answer or "nested more than 8 times" in answer


def test_nothing_is_imported_called_or_written(results: dict[str, Any], folder: Path) -> None:
    assert len(results) == len(ALL) + len(HARMLESS)
    asked = {event for result in results.values() for event in result["events"]}
    assert asked <= INNOCENT
    assert not list(REPOSITORY.rglob(f"{TARGET}*")) and not list(folder.rglob(f"{TARGET}*"))


def test_none_takes_long(results: dict[str, Any]) -> None:
    """A limit that only what grows without bounds exceeds: two million steps take some seconds on a busy machine."""
    assert max(result["seconds"] for result in results.values()) < 60


@pytest.mark.parametrize("name", sorted(CODE.keys() - {"runpy", "eval of Python 2", "REDUCE of Python 2"}))
def test_the_payloads_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Python's own unpickler does what they say, so that the test above could fail."""
    monkeypatch.chdir(tmp_path)
    value = pickle.loads(CODE[name])
    if name == "a call that builds":
        value()
    assert (tmp_path / TARGET).is_dir()
