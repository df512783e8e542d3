"""Ray Data: actors that hold the captioner, on this machine or a cluster, and parts that stream through them.

A row that goes in is a part; the row that comes out has its captions. The actors read the photos themselves, with the
threads of `caption_photos`. What travels between processes is the captioner, once for each actor, names and captions;
photos do not, which is why the object store can be small. RAY_ADDRESS names a cluster; without it Ray runs on this
machine alone, and is stopped at the end. Nothing is reported to Ray's makers.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from showtell.bulk.parts import Part, fetch, read_part
from showtell.captioners import Captioner
from showtell.captions import CaptionResult, caption_result
from showtell.cores import usable_cores
from showtell.errors import ImageError, MissingDependencyError, UsageError
from showtell.images.loading import READERS
from showtell.images.photo import IN_MEMORY

STORE = 128 * 2**20  # bytes of an object store for names and captions on their way, beside the weights


def require_ray() -> None:
    """Make sure that Ray is installed, without loading it.

    Raises:
        MissingDependencyError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError('Many processes need Ray; pip install "showtell[ray]".')


def caption_parts(
    captioner: Captioner,
    parts: Mapping[int, Part],
    *,
    column: str | None = None,
    workers: int | None = None,
    **options: Any,
) -> Iterator[tuple[int, list[CaptionResult]]]:
    """Caption parts with Ray Data; each comes with its number as soon as it is captioned.

    Args:
        captioner: what each actor gets a copy of; it is moved to the CPU.
        parts: by number.
        column: of parquet files, where the photos are.
        workers: actors; None: one for each GPU, or for each core where there is none. Never more than there are parts.
        options: of `Captioner.caption_photos`: settings, batch_size, attention.

    Raises:
        MissingDependencyError: Ray is not installed.
        UsageError: no cluster lets us in at RAY_ADDRESS.
    """
    if not parts:
        return
    with _connected(STORE + 2 * captioner.memory_bytes):
        import ray.data

        resources = ray.cluster_resources()
        cores, gpus = resources.get("CPU", 1), resources.get("GPU", 0)
        size = min(workers or int(gpus) or int(cores), len(parts))
        rows = [{"number": number, "part": json.dumps(part)} for number, part in parts.items()]
        data = ray.data.from_items(rows, override_num_blocks=len(rows))  # a part is a task
        data.context.enable_progress_bars = False
        data.context.print_on_execution_start = False
        captioned = data.map_batches(
            _Worker,
            batch_size=None,
            fn_constructor_args=(
                [ray.put(captioner.to("cpu"))],  # in a list it stays a reference
                max(1, int(cores) // size),
                str(Path.cwd()),
                column,
                options,
            ),
            # The second part waits at the actor, so that there is none between two.
            compute=ray.data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=2),
            num_cpus=min(1, cores / size),
            num_gpus=min(1, gpus / size),
        )
        for row in captioned.iter_rows():
            yield row["number"], json.loads(row["results"])


class _Worker:
    """What an actor does: parts in, results out."""

    def __init__(
        self, captioner: list[Any], threads: int, folder: str, column: str | None, options: dict[str, Any]
    ) -> None:
        import ray
        import torch

        if Path(folder).is_dir():
            os.chdir(folder)  # names of files are those of the command
        torch.set_num_threads(min(threads, usable_cores()))
        has_gpu = torch.cuda.is_available()
        self._captioner: Captioner = ray.get(captioner[0]).to("cuda" if has_gpu else "cpu")
        self._column = column
        self._options = {**options, "readers": max(READERS, threads) if has_gpu else READERS}

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[Any]]:
        parts = [tuple(json.loads(part)) for part in rows["part"]]
        results = [list(caption_part(self._captioner, part, self._column, **self._options)) for part in parts]
        return {"number": list(rows["number"]), "results": list(map(json.dumps, results))}


def caption_part(
    captioner: Captioner, part: Part, column: str | None = None, **options: Any
) -> Iterator[CaptionResult]:
    """The results of the photos of a part, in their order, those included that cannot be read."""
    photos = read_part(part, column)
    for (name, _), captions in captioner.caption_photos(photos, first_alone=False, fetch=fetch, **options):
        if isinstance(captions, ImageError):
            captions = ImageError(str(captions).replace(IN_MEMORY, name, 1))
        yield caption_result(name, captions)


@contextmanager
def _connected(store: int) -> Iterator[None]:
    """Ray, quiet, with an object store of so many bytes; what was started here is stopped here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    require_ray()
    import ray

    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address := os.environ.get("RAY_ADDRESS"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            if host and port.isdecimal():  # Ray itself tries again for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(**quietly)
        except OSError as error:
            raise UsageError(
                f"No Ray cluster lets us in at RAY_ADDRESS={address}: start one with ray start --head, give its "
                "address and, where it wants a token, RAY_AUTH_MODE=token; or unset RAY_ADDRESS to work on this "
                "machine alone."
            ) from error
    else:
        ray.init(address="local", object_store_memory=store, include_dashboard=False, **quietly)
    try:
        yield
    finally:
        ray.shutdown()
