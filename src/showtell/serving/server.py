"""The application on a port: listening, saying where, and ending without losing what is being answered."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI

from showtell.errors import UsageError, first_line, notify
from showtell.serving.settings import ServeSettings

GRACE = 5  # seconds in which what was asked is still answered after a signal
END = 8  # seconds after which a signal ends the process, whatever its threads are busy with
MUTE = 60.0  # seconds in which connections that could not be taken are told once


class Server(uvicorn.Server):
    """Shuts down on SIGTERM and SIGINT as uvicorn does, without raising them again, or after `END` seconds."""

    def __init__(self, app: FastAPI, settings: ServeSettings) -> None:
        self.app = app
        self.interrupted = False  # by SIGINT
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",  # `run` does that: what fails there is told in a sentence
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE + 1,  # `shutdown` ends it earlier
            )
        )
        self._muted_until = 0.0

    async def run_on(self, listener: socket.socket, announce: Callable[[], None]) -> None:
        """Start the application, announce that, answer until a signal or `should_exit`, and close the application."""
        asyncio.get_running_loop().set_exception_handler(self._handle_exception)
        async with self.app.router.lifespan_context(self.app):
            running = asyncio.create_task(self.serve(sockets=[listener]))
            while not self.started and not running.done():
                await asyncio.sleep(0.01)
            if not running.done():
                announce()
            await running
            for task in self.server_state.tasks:  # where nobody wants to wait for them
                task.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and wait for answers; after `GRACE` seconds as if nobody wanted to wait."""
        asyncio.get_running_loop().call_later(GRACE, setattr, self, "force_exit", True)
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Shut down on signals until the block ends."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signal(self, sig: int, frame: FrameType | None) -> None:
        self.handle_exit(sig, frame)
        signal.signal(signal.SIGALRM, lambda *_: os._exit(130 if self.interrupted else 0))
        signal.alarm(END)
        atexit.register(signal.alarm, 0)  # all threads have ended then

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what fails outside of requests; asyncio tells thousands of times of connections that it cannot take."""
        if not isinstance(context.get("exception"), OSError) or "socket" not in context:
            if not (self.should_exit and isinstance(context.get("exception"), ValueError)):  # it tries them once more
                loop.default_exception_handler(context)
        elif loop.time() > self._muted_until:
            self._muted_until = loop.time() + MUTE
            notify(
                f"a connection cannot be taken: {first_line(context['exception'])}; others wait until there is room. "
                "Allow more open files (ulimit -n), or put a reverse proxy in front."
            )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down after the running requests; a second SIGINT does not wait for them."""
        self.interrupted = self.interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)


def listen(settings: ServeSettings) -> socket.socket:
    """A socket at the address of some settings, or a UsageError."""
    host, port = settings.host, settings.port
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", error)).partition(" (")[0]
        raise UsageError(
            f"Cannot listen on port {port} of {host}: {reason}; choose another port (0 takes a free one), or 127.0.0.1."
        ) from error


def addresses(settings: ServeSettings, listener: socket.socket) -> list[str]:
    """The URLs of the page, this machine's own first, then the one for others; with the token, if there is one."""
    host, port = listener.getsockname()[:2]
    hosts = [host]
    if host in ("0.0.0.0", "::"):
        hosts = ["127.0.0.1" if host == "0.0.0.0" else "::1"]
        with socket.socket(listener.family, socket.SOCK_DGRAM) as probe, suppress(OSError):  # nothing is sent
            probe.connect(("192.0.2.1" if host == "0.0.0.0" else "2001:db8::1", 9))
            hosts.append(probe.getsockname()[0])
    token = "" if settings.token is None else f"?token={quote(settings.token, safe='')}"
    return [f"http://{f'[{host}]' if ':' in host else host}:{port}/{token}" for host in hosts]
