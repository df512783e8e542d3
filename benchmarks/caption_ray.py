"""How much faster two actors of Ray Data caption photos than one process, a thread each.

    python benchmarks/caption_ray.py [--images 128] [--size 224] [--json]

The photos and the captioner of `caption_folder.py`. One process and the actors each have one thread that computes; the
readers' threads give way to it. Both are measured once, each from its second batch on: what starting takes is left out
and a row of its own. With fewer free cores than actors the ratio says nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from caption_folder import make_captioner, write_photos
from rows import show
from showtell.bulk import caption_parts, plan_parts

WORKERS = 2


def rate(counts: Iterable[int], actors: int) -> tuple[float, float]:
    """Photos a second after the first batch of each actor, and the seconds until then; a count is a batch's."""
    began = time.perf_counter()
    batches = [(count, time.perf_counter()) for count in counts]
    first = batches[actors - 1][1]
    return sum(count for count, _ in batches[actors:]) / (batches[-1][1] - first), first - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    captioner = make_captioner(arguments.size)
    settings, batch_size = captioner.settings(), arguments.batch_size
    with tempfile.TemporaryDirectory() as name:
        paths = write_photos(Path(name), arguments.images)
        files = captioner.caption_files(paths, settings, batch_size, first_alone=False)
        plain, _ = rate((len(batch) for batch in iter(lambda: list(islice(files, batch_size)), [])), actors=1)
        parts = enumerate(plan_parts([name], batch_size))
        found = caption_parts(captioner, parts, settings, batch_size=batch_size, workers=WORKERS)
        ray, start = rate((len(captioned.records) for captioned in found if captioned.records), actors=WORKERS)
    about = {"images": arguments.images, "size": arguments.size, "batch_size": batch_size, "cores": os.cpu_count()}
    rows = [
        {
            "name": f"caption_ray_{WORKERS}_actors",
            "value": ray,
            "unit": "images per second",
            "against": "one process, one thread",
            "ratio": ray / plain,
            **about,
        },
        {
            "name": "start_of_ray",
            "value": start,
            "unit": "seconds",
            "against": "the time of one photo in one process",
            "ratio": start * plain,
            **about,
        },
    ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
