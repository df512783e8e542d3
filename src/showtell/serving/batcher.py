"""Captioners of this process behind a bounded queue that makes batches of the questions that come."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections.abc import Mapping
from typing import Any

from PIL import Image

from showtell.captioners.contract import Captioner
from showtell.confidence.storage import is_same_search
from showtell.errors import UsageError, nearest
from showtell.serving.device_queue import DeviceQueue, Pending
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

MEAN_PHOTO = 2_000_000  # bytes; the photos that wait may have so many each on average


class LocalEngine(Engine):
    """Answers with captioners of this process, a batch at a time on each device.

    A captioner that has loaded the calibration of its default settings gives captions of that search their calibrated
    confidence.
    """

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings) -> None:
        """Put the parts together; `start` opens for questions.

        Args:
            captioners: by name, the default first.
            settings: of the queue.
        """
        self._opened = dict(captioners)
        self._settings = settings
        self._served = {
            name: ServedCaptioner(
                name, captioner.about, captioner.abilities, captioner.decoding, captioner.calibration is not None
            )
            for name, captioner in captioners.items()
        }
        self.metrics = Metrics(lambda: self._waiting, lambda: self._running)
        devices = dict.fromkeys(captioner.device for captioner in captioners.values())
        self._queues = {device: DeviceQueue(settings.max_batch, settings.max_wait, self.metrics) for device in devices}
        self._photo_bytes = 0
        self._is_ready = False
        self._is_closing = False

    @property
    def captioners(self) -> Mapping[str, ServedCaptioner]:
        """Those that it has, by name; the first is the default."""
        return self._served

    async def start(self) -> None:
        """Get ready to answer: each captioner is asked for the caption of a grey photo, the first of its batches."""
        for queue in self._queues.values():
            queue.start()
        grey = io.BytesIO()
        Image.new("RGB", (256, 256), (128, 128, 128)).save(grey, "PNG")
        for name, served in self._served.items():
            await self.ask(Question("captions", name, grey.getvalue(), served.decoding, timeout=math.inf))
        self._is_ready = True

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
        captioner = self._captioner_for(question)
        queue = self._queues[captioner.device]
        self._admit(question, queue)
        seconds = self._settings.timeout if question.timeout is None else question.timeout
        pending = Pending(
            question,
            captioner,
            is_calibrated=captioner.calibration is not None and is_same_search(question.settings, captioner.decoding),
            deadline=time.monotonic() + seconds,
            answer=asyncio.get_running_loop().create_future(),
        )
        self._photo_bytes += len(question.photo)
        queue.add(pending)
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                return await pending.answer
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise TooLateError(
                f"The answer was not there within {seconds:g} seconds and is not computed any more; ask again later."
            ) from error
        finally:
            queue.forget(pending)
            self._photo_bytes -= len(question.photo)

    def _captioner_for(self, question: Question) -> Captioner:
        """The captioner that is asked.

        Raises:
            UsageError: there is none of that name, or it cannot do what it is asked for.
        """
        captioner = self._opened.get(question.captioner)
        if captioner is None:
            raise UsageError(
                f'There is no captioner "{question.captioner}"; {nearest(question.captioner, self._opened)}.'
            )
        captioner.check(question.settings)
        captioner.check_occlusion(question.occlusion)
        if question.attention and captioner.abilities.attention is None:
            raise UsageError(f"{captioner.about.name} has no attention to show; leave attention out.")
        if question.kind == "logprobs" and not question.texts:
            raise UsageError("Log-probabilities are those of given texts; give at least one.")
        return captioner

    def _admit(self, question: Question, queue: DeviceQueue) -> None:
        """Whether one more may wait.

        Raises:
            ClosingError: nobody may any more.
            QueueFullError: not now.
        """
        if self._is_closing:
            raise ClosingError("The server is ending and takes no new questions; ask again once it is back.")
        limit = max(self._settings.max_body, self._settings.queue * MEAN_PHOTO)
        if self._waiting >= self._settings.queue:
            reason = f"{self._waiting} photos wait already, and no more may"
        elif self._photo_bytes + len(question.photo) > limit and self._photo_bytes:
            reason = (
                f"Photos of {self._photo_bytes / 1e6:,.0f} MB wait already, and no more than {limit / 1e6:,.0f} MB may"
            )
        else:
            return
        seconds = queue.seconds_to_work_off
        raise QueueFullError(f"{reason}; ask again in {math.ceil(seconds)} s.", seconds)

    @property
    def _waiting(self) -> int:
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def _running(self) -> int:
        return sum(queue.running for queue in self._queues.values())

    def status(self) -> dict[str, Any]:
        """Whether it is ready, and how many wait and are being computed."""
        return {
            "ready": self._is_ready and not self._is_closing,
            "waiting": self._waiting,
            "running": self._running,
        }

    async def close(self) -> None:
        """Take no new questions, answer those that wait, and end the threads."""
        self._is_closing = True
        await asyncio.gather(*(asyncio.to_thread(queue.close) for queue in self._queues.values()))
