"""Cores that a process may use, by affinity and quota, and the threads that torch then has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from showtell.cores import cpu_quota, threads_to_set, usable_cores

MACHINE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
linux = pytest.mark.skipif(not MACHINE, reason="affinity is Linux's")
# What OpenMP read as torch loaded it, and what torch made of it.
LOADED = "import showtell, torch; print(torch.get_num_threads())"


def files(root: Path, contents: dict[str, str]) -> Path:
    for name, text in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def of_threads(root: Path, siblings: str) -> Path:
    """A machine whose cores have these siblings, {} being their own numbers."""
    names = {
        core: f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list" for core in os.sched_getaffinity(0)
    }
    return files(root, {name: siblings.format(core) + "\n" for core, name in names.items()})


def openmp(environment: dict[str, str], *command: str) -> tuple[dict[str, str], int]:
    """The settings that OpenMP shows, and torch's number of threads, in a process with such an environment."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = subprocess.run(
        [*command, sys.executable, "-c", LOADED],
        capture_output=True, text=True, check=True, env={**plain, "OMP_DISPLAY_ENV": "true", **environment},
    )  # fmt: skip
    rows = (line.split(" = ") for line in done.stderr.splitlines() if " = " in line)
    return {name.strip(): value.strip("'") for name, value in rows}, int(done.stdout)


@pytest.mark.parametrize(
    ("contents", "cores"),
    [
        ({}, float("inf")),
        ({"proc/self/cgroup": "0::/\n"}, float("inf")),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, float("inf")),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        # the group around it has less
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "150000 50000\n",
            },
            3,
        ),
        # a container that sees the host's path and its own group
        ({"proc/self/cgroup": "0::/docker/1234\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        # version 1, in which other controllers have other groups
        (
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/a\n2:cpuset:/b\n0::/\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/b/cpu.cfs_quota_us": "1000\n",
                "sys/fs/cgroup/cpu/b/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
    ],
)
def test_the_quota_is_the_least_of_the_groups_around_a_process(tmp_path, contents, cores):
    assert cpu_quota(files(tmp_path, contents)) == cores


@linux
def test_cores_are_those_of_the_mask_and_of_the_quota(tmp_path):
    assert usable_cores(tmp_path) == MACHINE
    quota = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "20000 100000\n"}
    assert usable_cores(files(tmp_path, quota)) == 1
    assert 1 <= usable_cores() <= MACHINE


@linux
def test_a_thread_for_each_physical_core_that_is_free(tmp_path):
    assert threads_to_set({}, of_threads(tmp_path / "plain", "{}")) == MACHINE
    assert threads_to_set({}, of_threads(tmp_path / "siblings", "0-1")) == 1
    quota = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    assert threads_to_set({}, files(of_threads(tmp_path / "quota", "{}"), quota)) == 1
    assert threads_to_set({"LOCAL_WORLD_SIZE": str(MACHINE)}, tmp_path / "plain") == 1
    assert threads_to_set({"LOCAL_WORLD_SIZE": "nonsense"}, tmp_path / "plain") == MACHINE


@linux
def test_what_the_user_set_stays_and_what_a_launcher_set_does_not(tmp_path):
    root = of_threads(tmp_path, "{}")
    launched = {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}
    launcher = root / f"proc/{os.getppid()}/environ"
    files(root, {str(launcher.relative_to(root)): "HOME=/root\0PATH=/bin\0"})
    assert threads_to_set(launched, root) == MACHINE
    assert threads_to_set({"OMP_NUM_THREADS": "1"}, root) is None
    assert threads_to_set({**launched, "OMP_NUM_THREADS": "3"}, root) is None
    launcher.write_text("HOME=/root\0OMP_NUM_THREADS=1\0")
    assert threads_to_set(launched, root) is None


@linux
@pytest.mark.skipif(shutil.which("taskset") is None, reason="no taskset")
def test_a_process_on_one_core_computes_with_one_thread_that_does_not_spin():
    core = str(min(os.sched_getaffinity(0)))
    settings, threads = openmp({}, "taskset", "-c", core)
    assert (settings["OMP_NUM_THREADS"], settings["OMP_WAIT_POLICY"], threads) == ("1", "PASSIVE", 1)


@linux
def test_openmp_sees_what_the_user_set():
    settings, threads = openmp({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "ACTIVE"})
    assert (settings["OMP_NUM_THREADS"], settings["OMP_WAIT_POLICY"], threads) == ("1", "ACTIVE", 1)
