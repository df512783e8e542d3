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
from typing import Any

from showtell.errors import MissingDependencyError, UsageError

STORE = 128 * 2**20  # bytes of an object store for names, captions and photos on their way, beside the weights


def require_ray() -> None:
    """Make sure that Ray is installed, without loading it.

    Raises:
        MissingDependencyError: it is not.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingDependencyError('The engine ray needs Ray; pip install "showtell[ray]".')


def _check_port_open(address: str) -> None:
    """Make sure that somebody listens at host:port; Ray itself tries again for minutes.

    Raises:
        OSError: nobody does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


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
    address = os.environ.get("RAY_ADDRESS")
    # Whatever else runs here; with an address it is the cluster's.
    alone: dict[str, Any] = {"address": "local", "object_store_memory": store, "include_dashboard": False}
    try:
        if address:
            _check_port_open(address)
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({} if address else alone))
    except OSError as error:
        if not address:
            raise
        raise UsageError(
            f"No Ray cluster lets us in at RAY_ADDRESS={address}: start one with ray start --head, give its address "
            "and, where it wants a token, RAY_AUTH_MODE=token; or unset RAY_ADDRESS to work on this machine alone."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()
