"""The environment of a run: what it does with memory that is freed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest

# In a process of its own, whose heap has no holes of other tests. 96 MB are above the largest size from which glibc
# would have a tensor mapped on its own.
PROGRAM = """
import json, resource, torch
from pathlib import Path
from showtell.training.launch import kept_memory

def megabytes():
    "Memory of this process that is in use or kept."
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

with kept_memory():
    for _ in range(4):
        torch.ones(96 * 2**18)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(96 * 2**18)
    mapped, inside = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, megabytes()
print(json.dumps([mapped, inside - megabytes()]))
"""


def measure(**settings: str) -> tuple[int, float]:
    """Pages that a tensor gets anew where others of its size were freed, and megabytes given back behind the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")} | settings
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True)
    mapped, given_back = json.loads(done.stdout)
    return mapped, given_back


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")
def test_freed_memory_is_kept_inside_the_block_alone_unless_the_user_decides():
    mapped, given_back = measure()
    assert mapped < 500 and given_back > 80
    mapped, given_back = measure(MALLOC_TRIM_THRESHOLD_="131072")
    assert mapped > 1000 and given_back < 20
