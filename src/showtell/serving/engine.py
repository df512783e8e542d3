"""The queue between the routes and the captioners: a question about one photo goes in, its answer comes out.

    answer = await engine.ask(Question("captions", "scenes", content, settings))

Threads prepare the photos, small ones beside each other and large ones one at a time. One thread answers them in
batches of questions that are equal but for the photo. It takes the batch that has waited longest, of those that are
ready: full, or with no further photo on its way, or with one that has waited for `max_wait`. So a batch is as large as
what came while the last one was computed, a lone question does not wait, and a rare setting is not overtaken.

All bookkeeping is done on the event loop; a client that is late or gone is a cancelled task, which leaves the queue.
Photos are prepared at most two batches ahead.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from PIL import Image

from showtell.captioners.contract import Captioner
from showtell.captions import Caption, ModelExplanation
from showtell.decoding_config import DecodingConfig
from showtell.errors import ShowtellError, UsageError
from showtell.images.loading import READERS
from showtell.images.photo import photo_pixels
from showtell.serving.metrics import Metrics
from showtell.serving.settings import ServeSettings

Kind = Literal["captions", "explanation"]
Answer = list[Caption] | ModelExplanation

SALIENCY = 16  # words that one word costs with saliency, which asks for it once for each region
BATCHES_AHEAD = 2  # batches of prepared photos that may wait
CLOSING = 1.0  # seconds in which those that wait are still answered
LARGE = 12_000_000  # pixels from which on photos are decoded one at a time


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
        given = (settings.prompt or "", settings.prefix or "", *settings.bad_words, *settings.force_words)
        beams = settings.num_beams * (1 + sum(len(phrase.split()) for phrase in settings.force_words))
        rows = max(beams, settings.num_return_sequences) * (1 if self.saliency is None else SALIENCY)
        return rows * settings.max_length + sum(map(len, given)) // 2


class PhotoTurns:
    """Limits on decoding: a large photo takes time and memory, so one at a time is decoded, beside the small ones."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(1)
        self._small = asyncio.Semaphore(READERS)

    @asynccontextmanager
    async def of(self, photo: bytes) -> AsyncIterator[None]:
        """What a task holds while a thread decodes this photo for it; already its header is read by a thread."""
        pixels = await asyncio.to_thread(photo_pixels, photo)
        async with self._large if pixels >= LARGE else self._small:
            yield


@dataclass(eq=False)
class _Pending:
    """A question that waits for its answer. Times are those of time.monotonic."""

    question: Question
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    arrived: float = field(default_factory=time.monotonic)
    opened: float = 0.0  # when a thread began to prepare its photo
    prepared: float = 0.0  # when that was done
    photo: Any = None  # prepared

    def __post_init__(self) -> None:
        self.shared = replace(self.question, photo=b"")  # what the questions of a batch have in common


class Engine:
    """Answers questions with captioners of this process. Its methods are called on the thread of the event loop.

    Where a captioner has a calibration, captions by the search that it is for have their chance of being good.

    Args:
        captioners: by name, the default first.
        settings: of the queue.
    """

    def __init__(self, captioners: Mapping[str, Captioner], settings: ServeSettings) -> None:
        self.captioners = dict(captioners)
        self.turns = PhotoTurns()
        self.waiting: dict[_Pending, None] = {}  # in the order in which they came, prepared or not
        self.running = 0  # questions that are being computed
        self.metrics = Metrics(lambda: len(self.waiting), lambda: self.running)
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
            self.metrics.errors.labels(QueueFullError.__name__).inc()
            raise QueueFullError(f"{len(self.waiting)} photos wait already, and no more may; ask again in a moment.")

    def require_affordable(self, question: Question) -> None:
        """Raise a UsageError if a question asks for too many words, since a model at work cannot be stopped, or for an
        saliency method that the captioner does not have.
        """
        self.captioners[question.captioner].check_saliency(question.saliency)
        if question.words > self._settings.max_words:
            times = "" if question.saliency is None else f", times {SALIENCY} for saliency"
            raise UsageError(
                f"The question asks for up to {question.words:,} words (beams or samples times max_length{times}), "
                f"and this server takes {self._settings.max_words:,} at a time; ask for fewer or shorter ones."
            )

    async def ask(self, question: Question) -> Answer:
        """The answer, that of the captioner to this photo alone (log-probabilities within 1e-5).

        If the caller is cancelled and the question is still waiting, it is never computed.

        Raises:
            ImageError: the photo cannot be read; the questions beside it are not touched.
            UsageError: the question is too large for this server, or not one for its captioner.
            QueueFullError: too many are waiting.
            TooLateError: the time-out passed.
            ClosingError: `close` was called.
            CheckpointError: the captioner's probabilities are no numbers.
        """
        self.require_affordable(question)
        self.require_room()
        arrived, seconds = time.monotonic(), self._settings.timeout
        try:
            async with asyncio.timeout(seconds):
                answer = await self._answer(question)
        except TimeoutError as error:
            self.metrics.errors.labels(TooLateError.__name__).inc()
            raise TooLateError(
                f"The answer was not there within {seconds:g} seconds and is not computed any more; ask again later."
            ) from error
        except BaseException as error:
            self.metrics.errors.labels(type(error).__name__).inc()
            raise
        self.metrics.question.labels(question.captioner, question.kind).observe(time.monotonic() - arrived)
        return answer

    async def _answer(self, question: Question) -> Answer:
        """The answer; cancelled, the question leaves the queue."""
        pending, captioner = _Pending(question), self.captioners[question.captioner]
        self.waiting[pending] = None
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, pending)
            async with self.turns.of(question.photo):
                await stack.enter_async_context(self._room)
                pending.opened = time.monotonic()
                pending.photo = await asyncio.to_thread(captioner.prepare, question.photo)
            pending.prepared = time.monotonic()
            self.metrics.stage.labels("prepare").observe(pending.prepared - pending.opened)
            self._changed.set()
            return await pending.answer

    def _leave(self, pending: _Pending) -> None:
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
            return list(self._answer_together(batch))
        except Exception as error:  # noqa: BLE001  (whatever a model raises is the answer of who asked)
            if len(batch) == 1:
                return [error]
        return [answer for pending in batch for answer in self._answers([pending])]

    def _answer_together(self, batch: Sequence[_Pending]) -> Sequence[Answer]:
        question, started = batch[0].shared, time.monotonic()
        captioner = self.captioners[question.captioner]
        encoded = captioner.encode_prepared([pending.photo for pending in batch])
        is_encoded = time.monotonic()
        answers: Sequence[Answer]
        if question.kind == "captions":
            captions = captioner.caption_encoded(encoded, question.settings)
            answers = captioner.calibrated(captions, question.settings, encoded)
        else:
            answers = captioner.explain_encoded(encoded, question.settings, saliency=question.saliency)
        done = time.monotonic()
        self.metrics.batch_size.labels(question.captioner, question.kind).observe(len(batch))
        for pending in batch:
            wait = started - pending.arrived - (pending.prepared - pending.opened)
            self.metrics.stage.labels("wait").observe(wait)
            self.metrics.stage.labels("encode").observe(is_encoded - started)
            self.metrics.stage.labels("answer").observe(done - is_encoded)
        return answers
