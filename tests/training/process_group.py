"""Processes of one run as a launcher starts them, without its seconds: forked from one that has imported torch."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from showtell.cli import main

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["showtell.training", "torch._dynamo"])  # which an optimiser imports when it is made


def start(processes: int, output: Path, function: Callable[..., Any], *arguments: Any) -> list[BaseProcess]:
    """Call a function in so many processes that share the work of a run; what they say goes to a file."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    started: list[BaseProcess] = []
    for rank in range(processes):
        process = CONTEXT.Process(target=_call, args=(rank, processes, port, output, function, arguments))
        process.start()
        started.append(process)
    return started


def end(started: list[BaseProcess], seconds: float = 200) -> list[int]:
    """Wait for them; their exit statuses."""
    for process in started:
        process.join(seconds)
        assert process.exitcode is not None, "a process does not end"
    return [process.exitcode for process in started if process.exitcode is not None]


def kill_command(arguments: Sequence[object], when: Callable[[], bool]) -> None:
    """Start a command of showtell in a process and kill it on its way."""
    process = CONTEXT.Process(target=main, args=([*map(str, arguments)],))
    process.start()
    deadline = time.monotonic() + 120
    while not when():
        assert time.monotonic() < deadline and process.is_alive()
        time.sleep(0.001)
    process.kill()
    process.join(30)


def _call(
    rank: int, processes: int, port: int, output: Path, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    with output.open("a") as stream:
        os.dup2(stream.fileno(), 2)
    if processes > 1:
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
        os.environ |= {name: str(number) for name, number in numbers.items()}
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    function(*arguments)
