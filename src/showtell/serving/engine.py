"""What stands between the routes and the captioners: a question about one photo goes in, its answer comes out.

    answer = await engine.ask(Question("captions", "scenes", content, settings))

The engine bounds what waits and how long. `batcher.py` makes batches of the questions.
"""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image

from showtell.captioners.contract import Abilities, About, Captioner, check_abilities
from showtell.captions import Caption, ModelExplanation
from showtell.decoding_config import DecodingConfig
from showtell.errors import ShowtellError, UsageError, nearest
from showtell.serving.batcher import Batcher, PhotoThreads
from showtell.serving.metrics import Metrics
from showtell.serving.settings import ServeSettings

Kind = Literal["captions", "explanation"]
Answer = list[Caption] | ModelExplanation

OCCLUSION = 16  # words that one word costs under occlusion, which asks for it once for each region


@dataclass(frozen=True)
class Question:
    """What is asked about one photo. Questions that are equal but for the photo can share a batch."""

    kind: Kind
    captioner: str  # one of the names of `Engine.captioners`
    photo: bytes  # an image file
    settings: DecodingConfig  # that `ServedCaptioner.settings` made
    occlusion: str | None = None  # method, of "explanation"

    @property
    def words(self) -> int:
        """Words that the model is asked for, at most: those of all beams or samples."""
        settings = self.settings
        given = (settings.prompt or "", settings.prefix or "", *settings.bad_words, *settings.force_words)
        beams = settings.num_beams * (1 + sum(len(phrase.split()) for phrase in settings.force_words))
        rows = max(beams, settings.num_return_sequences) * (1 if self.occlusion is None else OCCLUSION)
        return rows * settings.max_length + sum(map(len, given)) // 2


@dataclass(frozen=True)
class ServedCaptioner:
    """What is known of a captioner without asking it."""

    name: str  # in URLs and on the page: the name of its folder, numbered if two are equal
    about: About
    abilities: Abilities
    decoding: DecodingConfig  # default settings
    is_calibrated: bool = False

    def settings(self, **given: Any) -> DecodingConfig:
        """Its default settings with those that a person gives, as the command line takes them.

        What only the captioner itself can judge, such as a word that it does not know, is refused by `Engine.ask`.

        Raises:
            UsageError: an unknown name, a value out of range, or a setting that the captioner cannot honour.
        """
        settings = self.decoding.changed(**self.decoding.with_implied_search(given))
        check_abilities(self.about.name, self.abilities, settings)
        return settings


class QueueFullError(ShowtellError):
    """As many questions wait as may wait; `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooLateError(ShowtellError):
    """The answer was not there in time and will not be computed."""


class ClosingError(ShowtellError):
    """The server is ending and takes no new questions."""


class Engine:
    """Answers questions with captioners of this process. Its methods are called on the thread of the event loop.

    A captioner that has loaded the calibration of its default settings gives captions of that search their calibrated
    confidence.
    """

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings) -> None:
        """Put the parts together; `start` opens for questions.

        Args:
            captioners: by name, the default first.
            settings: of the queue.
        """
        self._settings = settings
        self._opened = dict(captioners)
        self.captioners = {
            name: ServedCaptioner(name, one.about, one.abilities, one.decoding, one.calibration is not None)
            for name, one in captioners.items()
        }
        self.metrics = Metrics(lambda: self.waiting, lambda: self.running)
        self.photos = PhotoThreads()
        devices = dict.fromkeys(captioner.device for captioner in captioners.values())
        self._batchers = {device: Batcher(settings, self.photos, self.metrics) for device in devices}
        self._photo_bytes = 0  # of the questions that have no answer yet
        self._asked = 0  # how many they are
        self._is_answered = asyncio.Event()  # set while there are none
        self._is_answered.set()
        self._is_closing = False
        self.is_ready = False

    @property
    def waiting(self) -> int:
        """Questions that wait, prepared or not."""
        return sum(batcher.waiting for batcher in self._batchers.values())

    @property
    def running(self) -> int:
        """Questions that are being computed."""
        return sum(batcher.running for batcher in self._batchers.values())

    async def start(self) -> None:
        """Get ready to answer: each captioner is asked for the caption of a grey photo, the first of its batches."""
        for batcher in self._batchers.values():
            batcher.start()
        grey = io.BytesIO()
        Image.new("RGB", (256, 256), (128, 128, 128)).save(grey, "PNG")
        for name, served in self.captioners.items():
            await self._answer(Question("captions", name, grey.getvalue(), served.decoding))
        self.is_ready = True

    def require_room(self, photo_bytes: int = 0) -> None:
        """Make sure that a question would be taken now, whatever it asks.

        Raises:
            ClosingError: none is any more.
            QueueFullError: too many wait, or their photos are too large.
        """
        problem: ShowtellError | None = None
        limit = self._settings.photo_bytes
        if self._is_closing:
            problem = ClosingError("The server is ending and takes no new questions; ask again once it is back.")
        elif self.waiting >= self._settings.queue:
            problem = self._queue_full(f"{self.waiting} photos wait already, and no more may")
        elif self._photo_bytes and self._photo_bytes + photo_bytes > limit:
            waiting = f"Photos of {self._photo_bytes / 1e6:,.0f} MB wait already"
            problem = self._queue_full(f"{waiting}, and no more than {limit / 1e6:,.0f} MB may")
        if problem is not None:
            self.metrics.failed(problem)
            raise problem

    def _queue_full(self, reason: str) -> QueueFullError:
        seconds = max(batcher.seconds_to_work_off for batcher in self._batchers.values())
        return QueueFullError(f"{reason}; ask again in {math.ceil(seconds)} s.", seconds)

    async def ask(self, question: Question) -> Answer:
        """The answer, that of the captioner to this photo alone (log-probabilities within 1e-5).

        If the caller is cancelled and the question is still waiting, it is never computed.

        Raises:
            ImageError: the photo cannot be read; the questions beside it are not touched.
            UsageError: the captioner cannot honour a setting, or the question is too large for this server.
            QueueFullError: too many are waiting.
            TooLateError: the time-out passed.
            ClosingError: `close` was called.
            NoNumberError: the captioner's probabilities are none.
        """
        self._check(question)
        self.require_room(len(question.photo))
        arrived, seconds = time.monotonic(), self._settings.timeout
        self._is_answered.clear()
        self._asked += 1
        self._photo_bytes += len(question.photo)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(question)
        except TimeoutError as error:
            late = TooLateError(
                f"The answer was not there within {seconds:g} seconds and is not computed any more; ask again later."
            )
            self.metrics.failed(late)
            raise late from error
        except BaseException as error:
            self.metrics.failed(error)
            raise
        finally:
            self._photo_bytes -= len(question.photo)
            self._asked -= 1
            if not self._asked:
                self._is_answered.set()
        self.metrics.answered(question.captioner, question.kind, time.monotonic() - arrived)
        return answer

    async def _answer(self, question: Question) -> Answer:
        captioner = self._opened[question.captioner]
        return await self._batchers[captioner.device].answer(question, captioner)

    def _check(self, question: Question) -> None:
        """Refuse what is never answered, before it waits.

        Raises:
            UsageError: there is no such captioner, it cannot do what it is asked for, or the model would be at work for
                too long: it cannot be stopped.
        """
        captioner = self._opened.get(question.captioner)
        if captioner is None:
            raise UsageError(
                f'There is no captioner "{question.captioner}"; {nearest(question.captioner, self._opened)}.'
            )
        captioner.check(question.settings)
        captioner.check_occlusion(question.occlusion)
        require_affordable(question, self._settings.max_words)

    async def close(self) -> None:
        """Take no new questions, answer those that wait, and end the threads."""
        self._is_closing = True
        self.is_ready = False
        await self._is_answered.wait()
        for batcher in self._batchers.values():
            batcher.close()
        self.photos.close()


def require_affordable(question: Question, max_words: int) -> None:
    """Make sure that a question asks the model for so many words at most.

    Raises:
        UsageError: it asks for more.
    """
    if question.words > max_words:
        times = "" if question.occlusion is None else f", times {OCCLUSION} for occlusion"
        raise UsageError(
            f"The question asks for up to {question.words:,} words (beams or samples times max_length{times}), "
            f"and this server takes {max_words:,} at a time; ask for fewer or shorter ones."
        )
