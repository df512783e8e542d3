"""The environment of a run: what it does with memory that is freed."""

from __future__ import annotations

import platform
import resource

import pytest
import torch

from showtell.training.launch import kept_memory

MEGABYTES = 96  # above the largest size from which glibc would have a tensor mapped on its own
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc is not glibc's")


def pages_mapped() -> int:
    """Pages that the system gives a tensor anew where others of its size were freed."""
    for _ in range(4):
        torch.ones(MEGABYTES * 2**18)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(MEGABYTES * 2**18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@needs_glibc
def test_freed_memory_is_kept_inside_the_block_alone(monkeypatch):
    for name in ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        monkeypatch.delenv(name, raising=False)
    with kept_memory():
        assert pages_mapped() < 500
    assert pages_mapped() > 1000


@needs_glibc
def test_what_the_user_has_set_stands(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    with kept_memory():
        assert pages_mapped() > 1000
