"""How much faster two actors of Ray Data caption photos than one process, a thread each.

    python benchmarks/caption_ray.py [--images 256] [--size 224] [--json]

The photos and the captioner of `caption_folder.py`. One process and the actors each have one thread that computes; the
threads that read give way to it. One process reads on a second core where one is free, which two actors on two cores
cannot, so it is measured on one core as well. All are measured once, from the second batch of each to where the first
of them has nothing left: what starting takes is a row of its own. With fewer free cores than actors the ratios say
nothing.
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

from caption_folder import make_captioner, write_photos
from rows import show
from showtell.bulk import caption_parts
from showtell.bulk.parts import FileList

import torch

WORKERS = 2


def rate(counts: Iterable[int], actors: int) -> tuple[float, float]:
    """Photos a second while all actors work, and the seconds until then; a count is a batch's.

    They work from the first batch of each to the first that ends when none is waiting any more.
    """
    began = time.perf_counter()
    batches = [(count, time.perf_counter()) for count in counts]
    first, last = batches[actors - 1][1], batches[-actors][1]
    return sum(count for count, _ in batches[actors : len(batches) - actors + 1]) / (last - first), first - began


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    captioner = make_captioner(arguments.size)
    settings, batch_size = captioner.settings(), arguments.batch_size
    with tempfile.TemporaryDirectory() as name:
        paths = write_photos(Path(name), arguments.images)

        def plainly() -> float:
            files = captioner.caption_photos(paths, settings, batch_size, first_alone=False)
            return rate((len(batch) for batch in iter(lambda: list(islice(files, batch_size)), [])), actors=1)[0]

        plain = plainly()
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})
        on_one_core = plainly()
        os.sched_setaffinity(0, cores)
        names = list(map(str, paths))
        parts = enumerate(FileList(tuple(names[at : at + batch_size])) for at in range(0, len(names), batch_size))
        captioned_parts = caption_parts(captioner, parts, settings, batch_size=batch_size, workers=WORKERS)
        ray, start = rate(
            (len(captioned.records) for captioned in captioned_parts if captioned.records), actors=WORKERS
        )
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
            "name": f"caption_ray_{WORKERS}_actors_cores",
            "value": ray,
            "unit": "images per second",
            "against": "one process on one core",
            "ratio": ray / on_one_core,
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
