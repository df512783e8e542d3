"""Captioners in replicas of Ray Serve, each a process with a `LocalEngine`, on this machine or a cluster.

    routes, guards, corrections, the bound on what waits    this process
    a question -> the replica that has the fewest           Ray Serve
    its queue, batches and model                            the replica

A replica that dies is started again by Ray Serve, and the questions that it had are asked of another one. What travels
is the captioners, once for each replica, photos and answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from showtell.bulk.cluster import STORE, connected, require_ray
from showtell.captioners.contract import Captioner
from showtell.cores import usable_cores
from showtell.datasets.issues import counted
from showtell.errors import MissingDependencyError, ShowtellError, notify
from showtell.serving.batcher import LocalEngine
from showtell.serving.bounded_engine import BoundedEngine
from showtell.serving.device_queue import BATCHES_AHEAD
from showtell.serving.engine import Answer, LostError, Question
from showtell.serving.settings import ServeSettings

MAX_TRIES = 3  # replicas that a question is asked of; a photo that kills each of them shall not kill all
MEMORY = 0.9  # weight of the mean time of answers against that of the newest


def require_ray_serve() -> None:
    """Make sure that Ray Serve is installed.

    Raises:
        MissingDependencyError: it is not.
    """
    require_ray()
    try:
        import ray.serve  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError('Replicas need Ray Serve; pip install "showtell[ray]".') from error


class RayEngine(BoundedEngine):
    """Answers with replicas, each of which has all captioners."""

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings, replicas: int) -> None:
        """Put the parts together; `start` starts the replicas.

        Args:
            captioners: by name, the default first; they are moved to the CPU, and each replica gets a copy.
            settings: of the queue, and of the batches of each replica.
            replicas: processes that answer.
        """
        super().__init__(captioners, settings)
        self._unsent = {name: captioner.to("cpu") for name, captioner in captioners.items()}
        self._replicas = replicas
        self._app = f"showtell-{os.getpid()}"  # a cluster may have others
        self._running_parts = ExitStack()
        self._handle: Any = None
        self._in_flight = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._seconds = 0.0  # that answers took of late

    async def start(self) -> None:
        """Start the replicas, each of which has captioned a photo when this returns."""
        notify(f"starting {counted(self._replicas, 'replica')} ...")
        # On a thread: Ray replaces the handlers of signals if it is started on the main one.
        self._handle = await asyncio.to_thread(self._deploy)
        self._is_ready = True

    def _deploy(self) -> Any:
        with ExitStack() as stack:
            stack.enter_context(connected(STORE + 2 * sum(one.memory_bytes for one in self._unsent.values())))
            import ray
            from ray import serve
            from ray.serve.config import ProxyLocation
            from ray.serve.schema import LoggingConfig

            quiet = LoggingConfig(log_level=logging.ERROR, enable_access_log=False)
            serve.start(proxy_location=ProxyLocation.Disabled, logging_config=quiet)
            stack.callback(serve.delete, self._app)
            per_replica = (1 + BATCHES_AHEAD) * self._settings.max_batch
            resources = ray.cluster_resources()
            cores, gpus = resources.get("CPU", 1), resources.get("GPU", 0)
            deployment = serve.deployment(
                name="captioners",
                num_replicas=self._replicas,
                max_ongoing_requests=per_replica,
                max_constructor_retry_count=2,
                health_check_period_s=1,
                graceful_shutdown_timeout_s=5,
                logging_config=quiet,
                ray_actor_options={
                    "num_cpus": min(1, cores / self._replicas),
                    "num_gpus": min(1, gpus / self._replicas),
                },
            )(_Replica)
            captioners = [ray.put(self._unsent)]  # in a list it stays a reference
            # What bounds the questions of a replica is this process; the token stays here.
            settings = ServeSettings(
                max_batch=self._settings.max_batch,
                max_wait=self._settings.max_wait,
                max_body=self._settings.max_body,
                queue=max(self._settings.queue, per_replica),
            )
            application = deployment.bind(captioners, settings, max(1, int(cores) // self._replicas))
            handle = serve.run(application, name=self._app, route_prefix=None)
            self._unsent = {}
            self._running_parts = stack.pop_all()
        return handle

    async def _answer(self, question: Question, seconds: float) -> Answer:
        """Ask one replica after another, until one does not die of it; see `BoundedEngine`."""
        from ray.exceptions import RayActorError

        arrived = time.monotonic()
        self._in_flight += 1
        self._is_idle.clear()
        try:
            for _ in range(MAX_TRIES):
                left = max(0.0, seconds - (time.monotonic() - arrived))
                response = self._handle.ask.remote(replace(question, timeout=left))
                try:
                    answer: Answer | ShowtellError = await response
                except RayActorError:
                    continue
                except asyncio.CancelledError:
                    response.cancel()
                    raise
                if isinstance(answer, ShowtellError):
                    raise answer
                taken = time.monotonic() - arrived
                self._seconds = MEMORY * self._seconds + (1 - MEMORY) * taken if self._seconds else taken
                return answer
            raise LostError(
                f"{MAX_TRIES} replicas died while they had this question; ask again, and look at the memory of the "
                "machine if that repeats itself."
            )
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._is_idle.set()

    @property
    def _waiting(self) -> int:
        return self._in_flight - self._running

    @property
    def _running(self) -> int:
        """As many as fit into the batches of all replicas: which of them are computed is known to the replicas."""
        return min(self._in_flight, self._replicas * self._settings.max_batch)

    def _seconds_to_work_off(self) -> float:
        """By Little's law: what answers took of late, with as many before them."""
        return self._seconds or 1.0

    def status(self) -> dict[str, Any]:
        """Whether it is ready, how many wait and are being computed, and by how many replicas."""
        return {**super().status(), "replicas": self._replicas}

    async def close(self) -> None:
        """Take no new questions, wait for the answers of the others, and end the replicas."""
        self._is_closing = True
        await self._is_idle.wait()
        await asyncio.to_thread(self._running_parts.close)


class _Replica:
    """What a process of Ray Serve does: the captioners and a queue in front of them."""

    async def __init__(self, captioners: list[Any], settings: ServeSettings, threads: int) -> None:  # type: ignore[misc]
        import ray
        import torch

        torch.set_num_threads(min(threads, usable_cores()))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        opened: dict[str, Captioner] = ray.get(captioners[0])
        self._engine = LocalEngine({name: captioner.to(device) for name, captioner in opened.items()}, settings)
        await self._engine.start()

    async def ask(self, question: Question) -> Answer | ShowtellError:
        """The answer, or the error that it ends with: Ray would wrap one that is raised."""
        try:
            return await self._engine.ask(question)
        except ShowtellError as error:
            return error
