"""How long runs take, and the rows that a benchmark ends with: a value, what it is held against, and their ratio."""

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def seconds(repeats: int, *runs: Callable[[], Any], device: str = "cpu") -> list[float]:
    """The median time of each run, measured in turn after unmeasured rounds, in which a GPU captures its graphs."""

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    for run in runs:
        for _ in range(1 if device == "cpu" else 3):
            run()
    wait()
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for times, run in zip(took, runs, strict=True):
            began = time.perf_counter()
            run()
            wait()
            times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in took]


def show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows, each with name, value, unit, against and ratio: as one JSON list, or a line for each."""
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:28} {row['value']:10.2f} {row['unit']:9} {row['ratio']:7.2f} x {row['against']}")
