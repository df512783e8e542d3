"""The application on a port: listening, saying where, and ending without losing what is being answered."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from showtell.errors import UsageError
from showtell.serving.protocol import TimedProtocol
from showtell.serving.settings import ServeSettings


class Server(uvicorn.Server):
    """A server that ends on SIGTERM and SIGINT as uvicorn does, and leaves it to the caller what follows from that.

    Args:
        app: the application; it is started before the first connection is taken.
        settings: of the server.
    """

    def __init__(self, app: FastAPI, settings: ServeSettings) -> None:
        self.app = app
        self.interrupted = False  # by SIGINT
        logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a broken form is its sender's matter
        super().__init__(
            uvicorn.Config(
                app,
                http=type("Protocol", (TimedProtocol,), {"seconds": settings.body_timeout}),
                ws="none",
                lifespan="off",  # `run` does that: what fails there is told in a sentence
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(settings.timeout + settings.body_timeout),
            )
        )

    async def run_on(self, listener: socket.socket, announce: Callable[[], None]) -> None:
        """Start the application, answer until a signal or `should_exit` ends it, and close the application.

        Args:
            listener: bound; closed at the end.
            announce: called when connections are taken.
        """
        async with self.app.router.lifespan_context(self.app):
            running = asyncio.create_task(self.serve(sockets=[listener]))
            while not self.started and not running.done():
                await asyncio.sleep(0.01)
            if not running.done():
                announce()
            await running
            for task in self.server_state.tasks:  # where nobody wants to wait for them
                task.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on signals; afterwards they mean again what they meant before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End after what is being answered; a second SIGINT does not wait for that."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)


def listen(settings: ServeSettings) -> socket.socket:
    """A socket at the address of some settings, which takes no connections yet.

    Raises:
        UsageError: the address cannot be had.
    """
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as stack:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            stack.pop_all()
            return listener
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number == errno.EADDRINUSE:
            raise UsageError(
                f"Port {port} of {host} is taken; end what listens there, or choose another port (0 takes a free one)."
            ) from error
        if number == errno.EACCES:
            raise UsageError(f"Port {port} may not be used by this user; choose one from 1024 to 65535.") from error
        raise UsageError(f"host={host} is no address of this machine; 127.0.0.1 always is.") from error


def addresses(settings: ServeSettings, listener: socket.socket) -> list[str]:
    """The URLs of the page, this machine's own first; with the token, if there is one."""
    host, port = listener.getsockname()[:2]
    hosts = [host]
    if host in ("0.0.0.0", "::"):
        hosts = ["127.0.0.1" if host == "0.0.0.0" else "::1", *_address_in_network(listener.family)]
    token = "" if settings.token is None else f"?token={quote(settings.token, safe='')}"
    return [f"http://{f'[{one}]' if ':' in one else one}:{port}/{token}" for one in hosts]


def _address_in_network(family: int) -> list[str]:
    """The address by which other machines reach this one, if there is a network; nothing is sent."""
    target = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"  # for documentation (RFC 5737, RFC 3849)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
        except OSError:
            return []
        return [str(probe.getsockname()[0])]
