"""HTTP/1.1 as uvicorn speaks it, and what it has no limit for: headers that trickle in, answers that nobody reads.

A request whose headers are slow reaches no application, so no application can refuse it; here the connection is cut.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from showtell.serving.problems import MEDIA_TYPE, Problem


class TimedProtocol(H11Protocol):
    """A connection whose client has to keep up.

    It is answered with 408 and closed if the headers of a request have not come `seconds` after its first byte (after
    the connection was made, for the first one), and cut if nothing of an answer is read for so long. Where there are
    more than `max_connections`, the one that has waited longest for its headers makes room, or else the new one goes.
    """

    seconds = 20.0
    max_connections = 900  # below the 1,024 files that a process may have open by default

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        if len(self.connections) > self.max_connections:
            self._make_room()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what has come, and see whether it is the beginning of a request."""
        super().handle_events()
        self._watch()

    def pause_writing(self) -> None:
        """The client reads slower than it is sent to."""
        super().pause_writing()
        self._writing = self._writing or self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    @property
    def waits_for_headers(self) -> bool:
        """Whether a request has begun and its headers have not ended; a new connection is the beginning of one."""
        is_between = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        return is_between and (self.cycle is None or bool(self.conn.trailing_data[0]))

    def _watch(self) -> None:
        if not self.waits_for_headers:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None
        elif self._reading is None:
            self._reading = self.loop.call_later(self.seconds, self._refuse_slow_headers)

    def _make_room(self) -> None:
        waiting = [one for one in self.connections if isinstance(one, TimedProtocol) and one._reading is not None]
        oldest = min(waiting, key=lambda one: one._reading.when() if one._reading else 0.0, default=self)
        oldest.transport.abort()

    def _refuse_slow_headers(self) -> None:
        self._reading = None
        if self.waits_for_headers:
            self._refuse(408, f"The headers have not come within {self.seconds:g} seconds.")

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "The request is no HTTP/1.1.")

    def _refuse(self, status: int, detail: str) -> None:
        problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
        content = json.dumps(problem.model_dump()).encode()
        headers = [("Content-Type", MEDIA_TYPE), ("Content-Length", str(len(content))), ("Connection", "close")]
        events: list[Any] = [
            h11.Response(status_code=status, headers=headers, reason=problem.title.encode()),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
