"""Ray on this machine or a cluster: quiet, started if it is not running, and stopped by who started it.

RAY_ADDRESS names a cluster; without it Ray runs on this machine alone. Nothing is reported to Ray's makers.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from showtell.errors import MissingDependencyError, UsageError

STORE = 128 * 2**20  # bytes of an object store for names and captions on their way, beside the weights


def require_ray() -> None:
    """Make sure that Ray is installed, without loading it.

    Raises:
        MissingDependencyError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError('Many processes need Ray; pip install "showtell[ray]".')


@contextmanager
def connected(store: int) -> Iterator[None]:
    """Ray, quiet, started if it is not running; what was started here is stopped here.

    Args:
        store: bytes of the object store of this machine.

    Raises:
        MissingDependencyError: it is not installed.
        UsageError: no cluster lets us in at RAY_ADDRESS.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    require_ray()
    import ray

    for name in ("ray", "ray.data", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    if address := os.environ.get("RAY_ADDRESS"):
        _join(address)
    else:
        ray.init(
            address="local", object_store_memory=store, include_dashboard=False,
            log_to_driver=False, logging_level=logging.ERROR,
        )  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()


def _join(address: str) -> None:
    import ray

    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdecimal():  # Ray itself tries again for minutes
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except OSError as error:
        raise UsageError(
            f"No Ray cluster lets us in at RAY_ADDRESS={address}: start one with ray start --head, give its address "
            "and, where it wants a token, RAY_AUTH_MODE=token; or unset RAY_ADDRESS to work on this machine alone."
        ) from error
