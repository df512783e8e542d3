"""How fast files of weights are read without running them, against torch.load of the same file.

    python benchmarks/read_weights.py [--repeats 15] [--json]

The weights are those of a ResNet-50 (102 MB, 320 tensors, random), as a state dict and as a whole module, in both
containers of torch.save. Both readers take turns on a file that the system has in memory; a row has the median of the
seconds, and a ratio of 2 means half as fast as torch.load.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rows import show
from showtell.torch_files import read_torch_file

import torch
import torchvision


def seconds(works: tuple[Callable[[Path], object], ...], path: Path, repeats: int) -> list[float]:
    """The median of each kind of work on a file, taking turns; the first turn is not counted."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for times, work in zip(taken, works, strict=True):
            began = time.perf_counter()
            work(path)
            times.append(time.perf_counter() - began)
    return [statistics.median(times[1:]) for times in taken]


def rows(repeats: int) -> list[dict[str, object]]:
    """A row for each content in each container."""
    module = torchvision.models.resnet50()
    contents = {"state_dict": (module.state_dict(), True), "module": (module, False)}
    table: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "weights.pth")
        for container, zipped in (("archive", True), ("stream", False)):
            for content, (value, weights_only) in contents.items():
                torch.save(value, path, _use_new_zipfile_serialization=zipped)

                def load(file: Path, weights_only: bool = weights_only) -> object:
                    return torch.load(file, map_location="cpu", weights_only=weights_only)

                ours, theirs = seconds((read_torch_file, load), path, repeats)
                table.append(
                    {
                        "name": f"{content}_{container}",
                        "value": ours,
                        "unit": "seconds",
                        "against": f"torch.load(weights_only={weights_only}), {path.stat().st_size / 1e6:.0f} MB",
                        "ratio": ours / theirs,
                    }
                )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    show(rows(arguments.repeats), arguments.json)


if __name__ == "__main__":
    main()
