"""HTTP/1.1 as uvicorn speaks it, and what it has no limit for: requests that trickle in, answers that nobody reads."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from showtell.serving.problems import ProblemResponse


class TimedProtocol(H11Protocol):
    """A connection whose client has to keep up.

    It is answered with 408 and closed if headers and body of a request have not come `seconds` after its first byte
    (after the connection was made, for the first one), and cut if nothing of an answer is read for so long.
    """

    seconds = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection."""
        super().connection_made(transport)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what has come, and see whether a request has begun or ended."""
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

    def _watch(self) -> None:
        if not self._is_receiving():
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None
        elif self._reading is None:
            self._reading = self.loop.call_later(self.seconds, self._refuse_slow_request)

    def _is_receiving(self) -> bool:
        """Whether a request has begun and not ended; a new connection is the beginning of one."""
        if self.transport.is_closing():
            return False
        has_begun = self.cycle is None or bool(self.conn.trailing_data[0])
        return self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.IDLE and has_begun)

    def _refuse_slow_request(self) -> None:
        self._reading = None
        if self._is_receiving():
            self._refuse(
                408, f"The request has not come within {self.seconds:g} seconds; send it faster, or a smaller photo."
            )

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(400, "The request is no HTTP/1.1.")

    def _refuse(self, status: int, detail: str) -> None:
        """Close the connection, with a problem if no answer has begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        answer = ProblemResponse(status, detail, {"Connection": "close"})
        reason = answer.problem.title.encode()
        events: list[Any] = [
            h11.Response(status_code=status, headers=answer.raw_headers, reason=reason),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
