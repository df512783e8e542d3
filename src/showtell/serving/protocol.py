"""HTTP/1.1 as uvicorn speaks it, and what it has no limit for: headers that trickle in, answers that nobody reads."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedProtocol(H11Protocol):
    """A connection that is cut if its client is slow; slow bodies are answered by the guard.

    `seconds` is allowed from a connection, or from the first byte of a further request, to the end of its headers, and
    for the client to read something of an answer.
    """

    seconds = 20.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the headers."""
        super().connection_made(transport)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._time("headers", True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        for kind in list(self._timers):
            self._time(kind, False)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Start or stop the timer of the headers as they begin or end."""
        super().handle_events()
        has_begun = self.cycle is None or bool(self.conn.trailing_data[0])
        self._time("headers", self.conn.their_state is h11.IDLE and has_begun)

    def pause_writing(self) -> None:
        """Start the timer of reading."""
        super().pause_writing()
        self._time("reading", True)

    def resume_writing(self) -> None:
        """Stop the timer of reading."""
        super().resume_writing()
        self._time("reading", False)

    def _time(self, kind: str, runs: bool) -> None:
        if not runs:
            if (timer := self._timers.pop(kind, None)) is not None:
                timer.cancel()
        elif kind not in self._timers and not self.transport.is_closing():
            self._timers[kind] = self.loop.call_later(self.seconds, self.transport.abort)
