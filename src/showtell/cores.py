"""How many cores this process may use, how many threads it computes with, and that it keeps the memory it computes in.

torch starts a thread for each physical core of the affinity mask (`taskset`, cpusets). It does not know the quota of a
container (`docker run --cpus`, limits of Kubernetes), under which its threads would mostly wait for each other.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
from pathlib import Path

CONTROL_GROUP = Path("/sys/fs/cgroup")  # of Linux; a container has its own there
_KEEP_MEMORY = {-4: 0, -1: 2**31 - 1}  # M_MMAP_MAX: no block of its own; M_TRIM_THRESHOLD: give back beyond 2 GB


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


def set_thread_defaults() -> None:
    """Let waiting threads sleep, no more of them than the quota; call it before torch is loaded: OpenMP reads it then.

    OpenMP's threads spin while they wait: beside other work training takes five times as long (docs/scaling.md).
    GNU's may spin for microseconds, or thousands of short waits would cost a quarter of the time.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if not math.isinf(cpu_quota()):
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))


def keep_freed_memory() -> None:
    """Let this process keep freed memory for its next step, unless the user has set MALLOC_* variables.

    By default glibc returns the large tensors of each layer to the system, which clears every page anew for the next:
    half of an encoder's time on a CPU (docs/lab_notes.md).
    """
    if platform.libc_ver()[0] == "glibc" and not any(name.startswith("MALLOC_") for name in os.environ):
        for setting, value in _KEEP_MEMORY.items():
            ctypes.CDLL(None).mallopt(setting, value)  # of libc
