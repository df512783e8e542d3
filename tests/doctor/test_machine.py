import importlib.metadata
import re
import shutil
from pathlib import Path

import pytest
import torch

from showtell.doctor import machine
from showtell.doctor.machine import EXTRAS, inspect_machine

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_here_is_told_as_it_is() -> None:
    machine_info = inspect_machine()
    assert machine_info.versions["torch"] == importlib.metadata.version("torch")
    assert "missing" not in machine_info.versions.values()
    assert machine_info.devices[-1].startswith("CPU") and len(machine_info.devices) == 1 + torch.cuda.device_count()
    assert 0 < machine_info.free_gigabytes <= machine_info.memory_gigabytes
    assert (machine_info.java is None) == (shutil.which("java") is None)
    assert machine_info.problems == () and "meteor" not in machine_info.missing  # the tests need both


def test_every_extra_of_the_package_is_known() -> None:
    declared = set(importlib.metadata.metadata("showtell").get_all("Provides-Extra") or ()) - {"dev", "docs"}
    assert declared == set(EXTRAS)


def test_what_is_missing_or_too_old_is_named_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"snowballstemmer": "3.0", "h5py": None, "torch": "2.5.1"}
    version = machine._version
    monkeypatch.setattr(machine, "_version", lambda name: versions.get(name, version(name)))
    machine_info = inspect_machine()
    assert machine_info.missing["meteor"] == (
        'METEOR, and SPICE beside Java: snowballstemmer missing or of another version; pip install "showtell[meteor]"'
    )
    assert machine_info.missing["hdf5"].endswith('h5py missing or of another version; pip install "showtell[hdf5]"')
    needed = re.search(r'"(torch>=[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert needed is not None
    assert machine_info.problems == (f'showtell needs {needed[1]}, and 2.5.1 is installed; pip install "{needed[1]}".',)


@pytest.mark.parametrize(("text", "shown"), [("#!/bin/sh\nexit 3\n", "java stops with status 3"), ("", None)])
def test_a_java_that_does_not_run_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, shown: str | None
) -> None:
    if text:
        (tmp_path / "java").write_text(text)
        (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine._java() == (None if shown is None else f"{tmp_path}/{shown}")
