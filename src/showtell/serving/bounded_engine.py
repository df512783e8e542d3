"""What engines have in common: a bound on what waits, a deadline for each question, and numbers of both."""

from __future__ import annotations

import abc
import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

from showtell.captioners.contract import Captioner
from showtell.errors import ShowtellError, UsageError, nearest
from showtell.serving.engine import (
    Answer,
    ClosingError,
    Engine,
    Question,
    QueueFullError,
    ServedCaptioner,
    TooLateError,
)
from showtell.serving.metrics import Metrics
from showtell.serving.settings import ServeSettings


class BoundedEngine(Engine):
    """An engine that takes at most so many questions at a time, and gives up those that are late."""

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings) -> None:
        """Make the parts.

        Args:
            captioners: by name, the default first.
            settings: of the queue.
        """
        self._settings = settings
        self._served = {
            name: ServedCaptioner(
                name, captioner.about, captioner.abilities, captioner.decoding, captioner.calibration is not None
            )
            for name, captioner in captioners.items()
        }
        self.metrics: Metrics = Metrics(lambda: self._waiting, lambda: self._running)
        self._photo_bytes = 0
        self._is_ready = False
        self._is_closing = False

    @property
    def captioners(self) -> Mapping[str, ServedCaptioner]:
        """Those that it has, by name; the first is the default."""
        return self._served

    async def ask(self, question: Question) -> Answer:
        """The answer, equal to what the captioner says of this photo alone; see `Engine.ask`."""
        arrived = time.monotonic()
        try:
            answer = await self._ask(question)
        except BaseException as error:
            self.metrics.failed(error)
            raise
        self.metrics.answered(question.captioner, question.kind, time.monotonic() - arrived)
        return answer

    async def _ask(self, question: Question) -> Answer:
        self._check(question)
        self._admit(question)
        seconds = self._settings.timeout if question.timeout is None else question.timeout
        timeout = asyncio.timeout(seconds)
        self._photo_bytes += len(question.photo)
        try:
            async with timeout:
                return await self._answer(question, seconds)
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise TooLateError(
                f"The answer was not there within {seconds:g} seconds and is not computed any more; ask again later."
            ) from error
        finally:
            self._photo_bytes -= len(question.photo)

    def _admit(self, question: Question) -> None:
        """Whether one more may wait.

        Raises:
            ClosingError: nobody may any more.
            QueueFullError: not now.
        """
        if problem := self._is_full():
            raise problem
        limit = self._settings.photo_bytes
        if self._photo_bytes + len(question.photo) > limit and self._photo_bytes:
            raise self._queue_full(
                f"Photos of {self._photo_bytes / 1e6:,.0f} MB wait already, and no more than {limit / 1e6:,.0f} MB may"
            )

    def refusal(self) -> ShowtellError | None:
        """Why no question would be taken now: it is ending, or as many wait as may; counted as an error."""
        problem = self._is_full()
        if problem:
            self.metrics.failed(problem)
        return problem

    def _is_full(self) -> ShowtellError | None:
        if self._is_closing:
            return ClosingError("The server is ending and takes no new questions; ask again once it is back.")
        if self._waiting >= self._settings.queue:
            return self._queue_full(f"{self._waiting} photos wait already, and no more may")
        return None

    def _queue_full(self, reason: str) -> QueueFullError:
        seconds = self._seconds_to_work_off()
        return QueueFullError(f"{reason}; ask again in {math.ceil(seconds)} s.", seconds)

    def status(self) -> dict[str, Any]:
        """Whether it is ready, and how many wait and are being computed."""
        return {
            "ready": self._is_ready and not self._is_closing,
            "waiting": self._waiting,
            "running": self._running,
        }

    def _check(self, question: Question) -> None:
        """Refuse what is never answered, before it waits.

        Raises:
            UsageError: there is no such captioner, or it cannot do what it is asked for.
        """
        if question.captioner not in self._served:
            raise UsageError(
                f'There is no captioner "{question.captioner}"; {nearest(question.captioner, self._served)}.'
            )

    @abc.abstractmethod
    async def _answer(self, question: Question, seconds: float) -> Answer:
        """Let a question wait and answer it; cancelled, nobody waits any more.

        Args:
            question: that was admitted.
            seconds: after which nobody waits.
        """

    @property
    @abc.abstractmethod
    def _waiting(self) -> int:
        """Questions that wait."""

    @property
    @abc.abstractmethod
    def _running(self) -> int:
        """Questions that are being computed."""

    @abc.abstractmethod
    def _seconds_to_work_off(self) -> float:
        """How long the questions that wait will take."""
