"""The queue between the routes and the captioners: a question about one photo goes in, its answer comes out.

    answer = await engine.ask(Question("captions", "scenes", content, settings))

Threads prepare the photos; one thread answers batches of questions that are equal but for the photo. It takes the batch
that has waited longest, of those that are ready: full, or with no further photo on its way, or with one that has waited
for `max_wait`. So a lone question does not wait, and a rare setting is not overtaken.

All bookkeeping is done on the event loop; a client that is late or gone is a cancelled task, which leaves the queue.
Photos are prepared at most two batches ahead.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from PIL import Image

from showtell.captioners.contract import Captioner
from showtell.captions import Caption, ModelExplanation, gibberish, without_gibberish
from showtell.decoding_config import DecodingConfig
from showtell.errors import NoCaptionError, ShowtellError, UsageError
from showtell.images.photo import IN_MEMORY
from showtell.serving.settings import ServeSettings

Kind = Literal["captions", "explanation"]
Answer = list[Caption] | ModelExplanation

SALIENCY = 16  # words that one word costs with saliency, which asks for it once for each region
BATCHES_AHEAD = 2  # batches of prepared photos that may wait
CLOSING = 1.0  # seconds in which those that wait are still answered


class QueueFullError(ShowtellError):
    """Too many questions are waiting."""


class TooLateError(ShowtellError):
    """The answer was not ready in time."""


class ClosingError(ShowtellError):
    """The server is shutting down."""


@dataclass(frozen=True)
class Question:
    """What is asked about one photo."""

    kind: Kind
    captioner: str  # one of the names of `Engine.captioners`
    photo: bytes  # an image file
    settings: DecodingConfig  # that the captioner can honour
    saliency: str | None = None  # method, of "explanation"

    @property
    def words(self) -> int:
        """The maximum number of words that the model computes: those of all beams or samples."""
        settings = self.settings
        given = (settings.prompt or "", settings.prefix or "", *settings.bad_words)
        rows = max(settings.num_beams, settings.num_return_sequences) * (1 if self.saliency is None else SALIENCY)
        return rows * settings.max_length + sum(map(len, given)) // 2


@dataclass(eq=False)
class _Pending:
    """A question that waits for its answer. Times are those of time.monotonic."""

    question: Question
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    prepared: float = 0.0  # when its photo was
    photo: Any = None  # prepared

    def __post_init__(self) -> None:
        self.shared = replace(self.question, photo=b"")  # what the questions of a batch have in common


class Engine:
    """Answers questions with captioners by name, the default first; its methods are called on the event loop."""

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings) -> None:
        self.captioners = dict(captioners)
        self.waiting: dict[_Pending, None] = {}  # in the order in which they came, prepared or not
        self.running = 0  # questions that are being computed
        self.is_ready = False
        self._settings = settings
        self._is_closing = False
        self._room = asyncio.Semaphore((1 + BATCHES_AHEAD) * settings.max_batch)  # for prepared photos
        self._changed = asyncio.Event()
        self._model = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Get ready to answer: each captioner is asked for the caption of a grey photo, the first of its batches."""
        self._loop = asyncio.create_task(self._answer_batches())
        grey = io.BytesIO()
        Image.new("RGB", (256, 256), (128, 128, 128)).save(grey, "PNG")
        for name, captioner in self.captioners.items():
            with suppress(NoCaptionError):
                await self._answer(Question("captions", name, grey.getvalue(), captioner.decoding))
        self.is_ready = True

    async def close(self) -> None:
        """Take no new questions, answer those that wait, for at most `CLOSING` seconds, and end the threads."""
        self._is_closing = True
        self.is_ready = False
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                while self.waiting or self.running:
                    await asyncio.sleep(0.01)
        if self._loop is not None:
            self._loop.cancel()
        self._model.shutdown(wait=False, cancel_futures=True)

    def require_room(self) -> None:
        """Raise a ClosingError or QueueFullError if no question would be taken now."""
        if self._is_closing:
            raise ClosingError("The server is ending and takes no new questions; ask again once it is back.")
        if len(self.waiting) >= self._settings.queue:
            raise QueueFullError(f"{len(self.waiting)} photos wait already, and no more may; ask again in a moment.")

    def require_affordable(self, question: Question) -> None:
        """Raise a UsageError for too many words (a model at work cannot be stopped) or an unknown saliency method."""
        self.captioners[question.captioner].check_saliency(question.saliency)
        if question.words > self._settings.max_words:
            times = "" if question.saliency is None else f", times {SALIENCY} for saliency"
            raise UsageError(
                f"The question asks for up to {question.words:,} words (beams or samples times max_length{times}), "
                f"and this server takes {self._settings.max_words:,} at a time; ask for fewer or shorter ones."
            )

    async def ask(self, question: Question) -> Answer:
        """The answer, that of the captioner to this photo alone (log-probabilities within 1e-5), or a ShowtellError.
        A question whose caller is cancelled leaves the queue."""
        self.require_affordable(question)
        self.require_room()
        seconds = self._settings.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._answer(question)
        except TimeoutError as error:
            raise TooLateError(
                f"The answer was not there within {seconds:g} seconds and is not computed any more; ask again later."
            ) from error

    async def _answer(self, question: Question) -> Answer:
        """The answer; cancelled, the question leaves the queue."""
        pending, captioner = _Pending(question), self.captioners[question.captioner]
        self.waiting[pending] = None
        try:
            async with self._room:
                pending.photo = await asyncio.to_thread(captioner.prepare, question.photo)
                pending.prepared = time.monotonic()
                self._changed.set()
                return await pending.answer
        finally:
            self.waiting.pop(pending, None)
            self._changed.set()

    async def _answer_batches(self) -> None:
        while True:
            batch = await self._next_batch()
            self.running = len(batch)
            results = await asyncio.get_running_loop().run_in_executor(self._model, self._answers, batch)
            self.running = 0
            for pending, result in zip(batch, results, strict=True):
                if pending.answer.done():  # cancelled
                    continue
                if isinstance(result, Exception):
                    pending.answer.set_exception(result)
                else:
                    pending.answer.set_result(result)

    async def _next_batch(self) -> list[_Pending]:
        """The questions to be answered next; they wait no longer."""
        while True:
            self._changed.clear()
            prepared: dict[Question, list[_Pending]] = {}
            for pending in self.waiting:
                if pending.prepared:
                    prepared.setdefault(pending.shared, []).append(pending)
            on_the_way = {pending.shared for pending in self.waiting if not pending.prepared}
            until = time.monotonic() - self._settings.max_wait
            left = {shared: min(pending.prepared for pending in some) - until for shared, some in prepared.items()}
            for shared, some in prepared.items():
                is_full = len(some) >= self._settings.max_batch or self._room.locked()
                if is_full or shared not in on_the_way or left[shared] <= 0:
                    batch = some[: self._settings.max_batch]
                    for pending in batch:
                        del self.waiting[pending]
                    return batch
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left.values(), default=None)):
                    await self._changed.wait()

    # --- on the thread of the model ---

    def _answers(self, batch: Sequence[_Pending]) -> list[Answer | Exception]:
        """The answers of a batch. If it fails its questions are asked one by one, so that only the guilty one fails."""
        try:
            return list(self._answer_batch(batch))
        except Exception as error:  # noqa: BLE001  (whatever a model raises is the answer of who asked)
            if len(batch) == 1:
                return [error]
        return [answer for pending in batch for answer in self._answers([pending])]

    def _answer_batch(self, batch: Sequence[_Pending]) -> Sequence[Answer | Exception]:
        question = batch[0].shared
        captioner = self.captioners[question.captioner]
        encoded = captioner.encode_prepared([pending.photo for pending in batch])
        if question.kind == "captions":
            captions = captioner.caption_encoded(encoded, question.settings)
            calibrated = captioner.calibrated(captions, question.settings, encoded)
            return [without_gibberish(own, IN_MEMORY) for own in calibrated]
        explained = captioner.explain_encoded(encoded, question.settings, saliency=question.saliency)
        is_calibrated = captioner.calibration is not None and captioner.calibration.fits(question.settings)
        judge = partial(gibberish, is_calibrated=is_calibrated)
        return [NoCaptionError(IN_MEMORY, reason) if (reason := judge(own.caption)) else own for own in explained]
