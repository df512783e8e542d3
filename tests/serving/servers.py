"""A real server on a port of 127.0.0.1 in a thread of the tests, and raw sockets to it."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from showtell.serving.app import create_app
from showtell.serving.engine import Engine
from showtell.serving.server import Server, listen
from showtell.serving.settings import ServeSettings

PATIENCE = 240  # seconds until a test is given up, whatever the machine does


@dataclass
class Running:
    """A server that answers."""

    port: int
    server: Server
    engine: Engine

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self, *sent: bytes) -> socket.socket:
        """A connection on which something was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        for part in sent:
            connection.sendall(part)
        return connection

    def talk(self, *sent: bytes) -> bytes:
        """What comes back until the server closes the connection."""
        with self.connect(*sent) as connection:
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the other side closes, or resets, the connection."""
    received = b""
    while True:
        try:
            part = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not part:
            return received
        received += part


@contextmanager
def running_server(engine: Engine, **settings: object) -> Iterator[Running]:
    """A server until the end of the block; it must end cleanly."""
    checked = ServeSettings.checked({"port": 0, **settings})
    listener = listen(checked)
    server = Server(create_app(engine, checked), checked)
    ready = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(server.run_on(listener, ready.set))
        except BaseException as error:  # noqa: BLE001  (raised below)
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield Running(listener.getsockname()[1] if listener.fileno() >= 0 else 0, server, engine)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
    assert not thread.is_alive()
    if failures:
        raise failures[0]
