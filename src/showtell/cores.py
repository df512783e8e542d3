"""How many cores this process may use, and how many threads it computes with.

A process may use the cores of its affinity mask (`taskset`, cpusets), for as much time as the quota of its control
groups allows (`docker run --cpus`, limits of Kubernetes, CPUQuota of systemd). Python and torch know the mask alone:
torch starts a thread for each physical core in it, and under a quota of one core these mostly wait for each other.

Everything is read from files of Linux; elsewhere torch's own choice stands.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path("/")
# What a launcher of several processes sets in each of them, and the number of threads that it gives those that nobody
# gave a number.
_LAUNCHED, _LAUNCHER_DEFAULT = ("TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"), "1"


def usable_cores(root: Path = ROOT) -> int:
    """Number of cores this process may use: those of its affinity mask, or fewer by its quota, rounded up.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    return min(len(_affinity()), _ceil(cpu_quota(root)))


def cpu_quota(root: Path = ROOT) -> float:
    """Processor time that control groups, of version 1 or 2, allow this process, in cores; infinite without a limit.

    Args:
        root: of the file system with `proc` and `sys`.
    """
    quota = math.inf
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = root / "sys/fs/cgroup" / ("cpu" if controllers else "")  # version 2 has no list of controllers here
        # A group is limited by those around it. In a container the path may be that of the host, and is not there then.
        for name in ("", *filter(None, group.split("/"))):
            folder /= name
            quota = min(quota, _quota_of(folder))
    return quota


def threads_to_set(environment: Mapping[str, str], root: Path = ROOT) -> int | None:
    """What OMP_NUM_THREADS should be set to before torch is loaded: a thread for each physical core that is free.

    Processes that a launcher started on one machine share its cores. `torchrun` and `accelerate launch` give each of
    them one thread if the variable was not set where they were started, which is no choice of the user.

    Args:
        environment: the variables of this process.
        root: of the file system with `proc` and `sys`.

    Returns:
        None if the user has set it, or the system does not tell.
    """
    is_set = "OMP_NUM_THREADS" in environment
    if (is_set and not _set_by_launcher(environment, root)) or not hasattr(os, "sched_getaffinity"):
        return None
    siblings = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    physical = {_read(root / siblings.format(core)) or str(core) for core in _affinity()}
    processes = environment.get("LOCAL_WORLD_SIZE", "1")
    share = int(processes) if processes.isdecimal() else 1
    return max(1, min(len(physical), _ceil(cpu_quota(root))) // max(1, share))


def describe_threads() -> str:
    """The threads that torch computes with, beside the cores of the machine.

    >>> import torch
    >>> describe_threads().split(" (")[0] == f"{torch.get_num_threads()} thread" + "s" * (torch.get_num_threads() > 1)
    True
    """
    import torch

    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    return f"{threads} thread{'s' * (threads > 1)} ({cores} core{'s' * (cores > 1)})"


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _ceil(quota: float) -> int:
    """A quota in whole cores: part of a core is worth a thread, which waits for the next period when it is used up."""
    return max(1, math.ceil(min(quota, 1e6)))


def _quota_of(group: Path) -> float:
    """The quota of one control group, by the files of version 2 or 1."""
    quota, _, period = _read(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else math.inf


def _set_by_launcher(environment: Mapping[str, str], root: Path) -> bool:
    """Whether the launcher set OMP_NUM_THREADS by itself: the launcher's own environment does not have it."""
    if environment.get("OMP_NUM_THREADS") != _LAUNCHER_DEFAULT or not any(name in environment for name in _LAUNCHED):
        return False
    variables = _read(root / f"proc/{os.getppid()}/environ").split("\0")
    return bool(variables[0]) and not any(one.startswith("OMP_NUM_THREADS=") for one in variables)


def _read(file: Path) -> str:
    """A small file of the system; empty where there is none."""
    try:
        return os.fsdecode(file.read_bytes()).strip()
    except OSError:
        return ""
