"""Working beside other processes: locks of folders, lines of progress, and cores to be had."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from showtell import cores
from showtell.errors import DataError
from showtell.processes import LOCK_NAME, lock_folder
from showtell.progress import ProgressLines, counting

HOLDER = """
import sys
from pathlib import Path
from showtell.processes import lock_folder
with lock_folder(Path(sys.argv[1]), "testing in", "another folder"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "locked\n"
        with pytest.raises(DataError) as raised, lock_folder(folder, "testing in", "another folder"):
            pytest.fail("two hold the lock")
        assert str(raised.value) == f"Another program is testing in {folder}; wait for it, or choose another folder."
        first.kill()  # SIGKILL: nothing of ours runs any more
        first.wait(10)
        with lock_folder(folder, "testing in", "another folder"):
            pass


def test_a_folder_that_stays_empty_is_removed_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deeper"
    with lock_folder(folder, "testing in", "another folder"):
        assert [path.name for path in folder.iterdir()] == [LOCK_NAME]
    assert not (tmp_path / "new").exists()
    (tmp_path / "kept").mkdir()
    with lock_folder(tmp_path / "kept", "testing in", "another folder"):
        pass
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_line_has_items_rate_and_time_left(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("showtell.progress.time.monotonic", lambda: clock[0])
    lines = ProgressLines("captioning", 1000)
    assert lines.describe() == "captioning: 0 of 1,000"
    lines.advance(10)
    clock[0] += 10
    lines.advance(20)
    assert lines.describe() == "captioning: 30 of 1,000, 2.0/s, 0:08:05 left"
    lines.detail = "loss 1.5"
    assert lines.describe() == "captioning: 30 of 1,000, loss 1.5, 0:08:05 left"


def test_a_line_comes_every_20_seconds_and_none_from_what_is_quiet(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("showtell.progress.SECONDS", 20)
    monkeypatch.setattr("showtell.progress.time.monotonic", lambda: clock[0])
    with counting("validating", 70) as count, counting("hidden", 2, quiet=True) as hidden:
        for _ in range(7):
            clock[0] += 9
            count(10)
            hidden(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" of")[0] for line in lines] == ["showtell: validating: 30", "showtell: validating: 60"]


def test_the_quota_of_a_container(tmp_path):
    for contents, quota in (
        ({}, math.inf),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
    ):
        group = tmp_path / str(len(list(tmp_path.iterdir())))
        (group / "cpu").mkdir(parents=True)
        for name, content in contents.items():
            (group / name).write_text(content)
        assert cores.cpu_quota(group) == quota, contents


def test_threads_are_as_many_as_the_quota_allows_and_do_not_spin_unless_told_otherwise(monkeypatch):
    for quota, given, threads in (
        (math.inf, {}, ("PASSIVE", "10000", None)),
        (0.5, {"GOMP_SPINCOUNT": "0"}, ("PASSIVE", "0", "1")),
        (0.5, {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "2"}, ("ACTIVE", None, "2")),
    ):
        environment = dict(given)
        monkeypatch.setattr(os, "environ", environment)
        monkeypatch.setattr(cores, "cpu_quota", lambda quota=quota: quota)
        cores.set_thread_defaults()
        assert tuple(map(environment.get, ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"))) == threads
