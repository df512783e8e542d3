"""Gradients of the processes of one machine, added up through memory that they share.

gloo, torch's way between processes on processors, sends them through the system's network, by threads that take the
cores from the training: a quarter of a step of two processes (docs/lab_notes.md). Here each process writes what the
others are to add up, adds up its own part for all, and reads theirs; gloo only says when. So a process that is lost is
noticed as it always was. Memory without a name (memfd) is neither limited as /dev/shm is in containers nor left behind
by a kill.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

PIECE = 2**22  # gradients that are added up at once; with fewer, waiting takes longer than adding up
_TOKEN = 16  # bytes in front of the memory of a process, by which others know it


def share_gradients(model: torch.nn.Module, accelerator: Accelerator) -> bool:
    """Let the processes of a model add up gradients through shared memory, where they are all on this machine.

    Args:
        model: as accelerate prepared it.
        accelerator: of the run; every process calls this at the same point.

    Returns:
        Whether they do; if not, they add them up as torch does.
    """
    are_on_processors = accelerator.num_processes > 1 and accelerator.device.type == "cpu"
    if not isinstance(model, DistributedDataParallel) or not are_on_processors:
        return False
    memory = _open_memory(accelerator)
    if memory is None:
        return False
    exchange = _Exchange(memory, accelerator.process_index)
    model.register_comm_hook(exchange, lambda state, bucket: _average(state, bucket))  # whose annotations torch reads
    return True


class _Exchange:
    """What the processes write for each other: rows of a process are for process 0, 1 .., and last what it added up."""

    def __init__(self, memory: Sequence[Tensor], rank: int) -> None:
        self.memory = memory  # of each process, (P + 1, width)
        self.rank = rank
        self.waiting: list[tuple[Future[Tensor], Tensor]] = []  # buckets of this backward pass
        self._signal = torch.zeros(1)

    def average(self, gradients: Tensor) -> None:
        """The mean over the processes, in place."""
        own_rows, share = self.memory[self.rank], 1 / len(self.memory)
        others = [rank for rank in range(len(self.memory)) if rank != self.rank]
        for start in range(0, len(gradients), PIECE):
            parts = gradients[start : start + PIECE].tensor_split(len(self.memory))
            for rank in others:
                torch.mul(parts[rank], share, out=own_rows[rank, : len(parts[rank])])
            self._wait()
            own = parts[self.rank]
            first, *rest = (self.memory[rank][self.rank, : len(own)] for rank in others)
            total = torch.add(first, own, alpha=share, out=own_rows[-1, : len(own)])
            for other in rest:
                total.add_(other)
            own.copy_(total)
            self._wait()
            for rank in others:
                parts[rank].copy_(self.memory[rank][-1, : len(parts[rank])])

    def _wait(self) -> None:
        """Wait until every process is here."""
        torch.distributed.all_reduce(self._signal)


def _average(exchange: _Exchange, bucket: Any) -> Future[Tensor]:
    """torch's hook: the mean of a bucket of gradients, which is there when the last bucket is.

    On a processor nothing is won by adding up beside the backward pass, and the processes would wait at every bucket.
    """
    future: Future[Tensor] = Future()
    exchange.waiting.append((future, bucket.buffer()))
    if bucket.is_last():
        for future_of_bucket, gradients in exchange.waiting:
            exchange.average(gradients)
            future_of_bucket.set_result(gradients)
        exchange.waiting.clear()
    return future


def _open_memory(accelerator: Accelerator) -> list[Tensor] | None:
    """The memory of all processes, of which each has made its own; None where one cannot reach another's."""
    processes = accelerator.num_processes
    width = -(-PIECE // processes)
    size, token = _TOKEN + 4 * (processes + 1) * width, secrets.token_bytes(_TOKEN)
    own = _make(size, token)
    known = gather_object([(f"/proc/{os.getpid()}/fd/{own}" if own is not None else "", token)])
    opened = [_open(path, size, expected) for path, expected in known]
    everywhere = all(gather_object([None not in opened]))  # after which all have opened what they need
    if own is not None:
        os.close(own)
    if not everywhere:
        return None
    return [
        torch.frombuffer(one, dtype=torch.float32, offset=_TOKEN).view(processes + 1, width)
        for one in opened
        if one is not None
    ]


def _make(size: int, token: bytes) -> int | None:
    """The descriptor of new memory; None where the system has none to give."""
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("showtell-gradients")
    try:
        os.posix_fallocate(descriptor, 0, size)
        os.write(descriptor, token)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _open(path: str, size: int, token: bytes) -> mmap.mmap | None:
    """The memory of a process of this machine, by the path of its descriptor; None where it is not that."""
    try:
        with Path(path).open("r+b") as file:
            memory = mmap.mmap(file.fileno(), size)
    except (OSError, ValueError):
        return None
    return memory if memory[:_TOKEN] == token else None
