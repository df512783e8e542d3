"""How many cores this process may use, and how many threads it computes with.

torch starts a thread for each physical core of the affinity mask (`taskset`, cpusets). It does not know the quota of a
container (`docker run --cpus`, limits of Kubernetes), under which its threads would mostly wait for each other.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")  # of Linux; a container has its own there


def cpu_quota(group: Path = CONTROL_GROUP) -> float:
    """Processor time that the control group, of version 2 or 1, allows, in cores; infinite without a limit."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / name).read_text() for name in names).split()
        except (OSError, ValueError):
            continue
        return int(quota) / int(period) if quota.isdecimal() else math.inf
    return math.inf


def usable_cores() -> int:
    """Number of cores this process may use: those of its affinity mask, or fewer by its quota, rounded up."""
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return mask if math.isinf(quota := cpu_quota()) else max(1, min(mask, math.ceil(quota)))


def describe_threads() -> str:
    """The threads that torch computes with, beside the cores of the machine."""
    import torch

    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    return f"{threads} thread{'s' * (threads > 1)} ({cores} core{'s' * (cores > 1)})"
