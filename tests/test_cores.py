"""Cores that a process may use, by affinity and quota, and the threads that torch then has."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from showtell import cores

linux = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="affinity is Linux's")
# What torch makes of what it reads as it is loaded.
LOADED = """
import os
import platform
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from showtell.cores import set_thread_defaults
set_thread_defaults()
import torch
print(torch.get_num_threads(), os.environ["OMP_WAIT_POLICY"])
"""


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


@linux
def test_a_process_on_one_core_computes_with_one_thread_that_does_not_spin(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    command = [sys.executable, "-c", LOADED]
    done = subprocess.run(command, env=environment, cwd=Path(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == "1 PASSIVE\n"
