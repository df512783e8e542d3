"""Captioners of this process behind a bounded queue that makes batches of the questions that come."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections.abc import Mapping

from PIL import Image

from showtell.captioners.contract import Captioner
from showtell.confidence.storage import is_same_search
from showtell.errors import UsageError
from showtell.serving.bounded_engine import BoundedEngine
from showtell.serving.device_queue import DeviceQueue, Pending
from showtell.serving.engine import Answer, Question
from showtell.serving.settings import ServeSettings


class LocalEngine(BoundedEngine):
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
        super().__init__(captioners, settings)
        self._opened = dict(captioners)
        devices = dict.fromkeys(captioner.device for captioner in captioners.values())
        self._queues = {device: DeviceQueue(settings.max_batch, settings.max_wait, self.metrics) for device in devices}

    async def start(self) -> None:
        """Get ready to answer: each captioner is asked for the caption of a grey photo, the first of its batches."""
        for queue in self._queues.values():
            queue.start()
        grey = io.BytesIO()
        Image.new("RGB", (256, 256), (128, 128, 128)).save(grey, "PNG")
        for name, served in self._served.items():
            await self.ask(Question("captions", name, grey.getvalue(), served.decoding, timeout=math.inf))
        self._is_ready = True

    def _check(self, question: Question) -> None:
        """Refuse what the captioner cannot do; see `BoundedEngine`."""
        super()._check(question)
        captioner = self._opened[question.captioner]
        captioner.check(question.settings)
        captioner.check_occlusion(question.occlusion)
        if question.attention and captioner.abilities.attention is None:
            raise UsageError(f"{captioner.about.name} has no attention to show; leave attention out.")
        if question.kind == "logprobs" and not question.texts:
            raise UsageError("Log-probabilities are those of given texts; give at least one.")

    async def _answer(self, question: Question, seconds: float) -> Answer:
        """Wait in the queue of the captioner's device; see `BoundedEngine`."""
        captioner = self._opened[question.captioner]
        pending = Pending(
            question,
            captioner,
            is_calibrated=captioner.calibration is not None and is_same_search(question.settings, captioner.decoding),
            deadline=time.monotonic() + seconds,
            answer=asyncio.get_running_loop().create_future(),
        )
        queue = self._queues[captioner.device]
        queue.add(pending)
        try:
            return await pending.answer
        finally:
            queue.forget(pending)

    @property
    def _waiting(self) -> int:
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def _running(self) -> int:
        return sum(queue.running for queue in self._queues.values())

    def _seconds_to_work_off(self) -> float:
        return max(queue.seconds_to_work_off for queue in self._queues.values())

    async def close(self) -> None:
        """Take no new questions, answer those that wait, and end the threads."""
        self._is_closing = True
        await asyncio.gather(*(asyncio.to_thread(queue.close) for queue in self._queues.values()))
