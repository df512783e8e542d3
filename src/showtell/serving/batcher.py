"""Questions to the captioners of one device: threads prepare their photos, and one thread answers them in batches.

    answer -> prepared by a thread -> lane -> batch -> the model's thread

A lane has the prepared questions that can share a batch. The model takes the lane whose first question has waited
longest, of those that are ready: full, or nothing more for it is on its way, or its first question has waited for
`max_wait`. So a batch is as large as what has come while the one before was computed, a question that comes alone does
not wait, and nobody who came later passes a rare setting.

All bookkeeping is done on the event loop. Who is late or gone is a cancelled task, which leaves its lane. Photos are
prepared two batches ahead; of the others that wait there are the bytes that came.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from showtell.captioners.contract import Captioner
from showtell.confidence.storage import is_same_search
from showtell.decoding_config import DecodingConfig
from showtell.errors import ShowtellError
from showtell.images.loading import READERS
from showtell.images.photo import photo_pixels
from showtell.serving.metrics import Metrics
from showtell.serving.settings import ServeSettings

if TYPE_CHECKING:
    from showtell.serving.engine import Answer, Kind, Question

ResultT = TypeVar("ResultT")
BATCHES_AHEAD = 2  # prepared photos, in batches
LARGE = 12_000_000  # pixels from which on photos are decoded one at a time, so that small ones pass them
MEMORY = 0.9  # weight of the measured time per photo against that of the newest batch


class NoNumberError(ShowtellError):
    """The probabilities of a captioner are no numbers."""


class PhotoThreads:
    """The threads that decode photos. A large one needs much time and memory: one at a time, beside the small ones."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(READERS + 1, thread_name_prefix="photos")
        self._large = asyncio.Lock()
        self._small = asyncio.Semaphore(READERS)

    async def run(self, photo: bytes, work: Callable[[], ResultT]) -> ResultT:
        """The result of some work on a photo."""
        async with self.turn(photo):
            return await self.work(work)

    def turn(self, photo: bytes) -> asyncio.Lock | asyncio.Semaphore:
        """Lets in who may decode this photo."""
        return self._large if photo_pixels(photo) >= LARGE else self._small

    async def work(self, work: Callable[[], ResultT]) -> ResultT:
        """The result of some work, for who has a turn."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Begin nothing new; what is being decoded is left to itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Lane(NamedTuple):
    """What the questions of a batch have in common."""

    kind: Kind
    captioner: str
    settings: DecodingConfig
    occlusion: str | None


@dataclass(eq=False)
class _Pending:
    """A question that waits for its answer. Times are those of time.monotonic."""

    question: Question
    captioner: Captioner
    answer: asyncio.Future[Answer]
    lane: _Lane = field(init=False)
    arrived: float = field(default_factory=time.monotonic)
    waited: float = 0.0  # seconds before its photo was prepared
    prepared: float = 0.0  # when
    photo: Any = None  # prepared
    has_room: bool = False

    def __post_init__(self) -> None:
        asked = self.question
        self.lane = _Lane(asked.kind, asked.captioner, asked.settings, asked.occlusion)


class Batcher:
    """The lanes of one device and the thread that answers them.

    Args:
        settings: of the queue.
        photos: the threads that prepare photos.
        metrics: what it measures.
    """

    def __init__(self, settings: ServeSettings, photos: PhotoThreads, metrics: Metrics) -> None:
        self._max_batch, self._max_wait = settings.max_batch, settings.max_wait
        self._photos = photos
        self._metrics = metrics
        self._room = asyncio.Semaphore((1 + BATCHES_AHEAD) * settings.max_batch)  # for prepared photos
        self._waiting: set[_Pending] = set()  # prepared or not
        self._on_the_way: Counter[_Lane] = Counter()  # those that are not prepared yet
        self._lanes: dict[_Lane, dict[_Pending, None]] = {}  # dicts are the sets that keep their order
        self._changed = asyncio.Event()
        self._model = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._loop: asyncio.Task[None] | None = None
        self._seconds = 0.0  # that a photo took of late; 0 before the first
        self.running = 0  # questions that are being computed

    def start(self) -> None:
        """Begin to answer."""
        self._loop = asyncio.create_task(self._answer_batches())

    def close(self) -> None:
        """End; nobody may be waiting any more."""
        if self._loop is not None:
            self._loop.cancel()
        self._model.shutdown(wait=False)

    @property
    def waiting(self) -> int:
        """Questions that wait, prepared or not."""
        return len(self._waiting)

    @property
    def seconds_to_work_off(self) -> float:
        """How long those that wait will take, at the rate of late; 1 if nothing was answered yet."""
        return self.waiting * self._seconds if self._seconds else 1.0

    async def answer(self, question: Question, captioner: Captioner) -> Answer:
        """The answer of a captioner of this device; cancelled, the question is not computed unless it is already."""
        pending = _Pending(question, captioner, asyncio.get_running_loop().create_future())
        self._waiting.add(pending)
        try:
            await self._prepare(pending)
            return await pending.answer
        finally:
            self._leave(pending)
            if pending.has_room:
                self._room.release()

    async def _prepare(self, pending: _Pending) -> None:
        """Prepare a question's photo and let it wait in its lane."""
        self._on_the_way[pending.lane] += 1
        content = pending.question.photo
        try:
            async with self._photos.turn(content):
                pending.has_room = await self._room.acquire()
                started = time.monotonic()
                pending.photo = await self._photos.work(partial(pending.captioner.open_photo, content))
        finally:
            self._on_the_way[pending.lane] -= 1
            self._changed.set()
        pending.waited, pending.prepared = started - pending.arrived, time.monotonic()
        self._metrics.stages({"prepare": pending.prepared - started})
        self._lanes.setdefault(pending.lane, {})[pending] = None

    def _leave(self, pending: _Pending) -> None:
        """Take a question out of its lane: it is computed, or nobody waits for it any more."""
        self._waiting.discard(pending)
        lane = self._lanes.get(pending.lane, {})
        if pending in lane:
            del lane[pending]
            if not lane:
                del self._lanes[pending.lane]

    async def _answer_batches(self) -> None:
        while True:
            batch = await self._next_batch()
            began, self.running = time.monotonic(), len(batch)
            results = await asyncio.get_running_loop().run_in_executor(self._model, self._answers, batch)
            self.running = 0
            seconds = (time.monotonic() - began) / len(batch)
            self._seconds = MEMORY * self._seconds + (1 - MEMORY) * seconds if self._seconds else seconds
            for pending, result in zip(batch, results, strict=True):
                if pending.answer.done():  # cancelled
                    continue
                if isinstance(result, Exception):
                    pending.answer.set_exception(result)
                else:
                    pending.answer.set_result(result)

    async def _next_batch(self) -> list[_Pending]:
        """The questions to be answered next."""
        while True:
            self._changed.clear()
            now = time.monotonic()
            heads = {key: next(iter(lane)) for key, lane in self._lanes.items()}
            ready = [key for key, head in heads.items() if self._is_ready(key, head, now)]
            if ready:
                lane = self._lanes[min(ready, key=lambda key: heads[key].arrived)]
                batch = list(lane)[: self._max_batch]
                for pending in batch:
                    self._leave(pending)
                return batch
            ends = [head.prepared + self._max_wait - now for head in heads.values()]
            try:
                async with asyncio.timeout(min(ends, default=None)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _is_ready(self, key: _Lane, head: _Pending, now: float) -> bool:
        """Whether a lane, of which this is the first question, has nothing to wait for."""
        return (
            not self._on_the_way[key]
            or len(self._lanes[key]) >= self._max_batch
            or now - head.prepared >= self._max_wait
            or self._room.locked()
        )

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
        lane, captioner, started = batch[0].lane, batch[0].captioner, time.monotonic()
        encoded = captioner.encode_prepared([pending.photo for pending in batch])
        is_encoded = time.monotonic()
        answers: Sequence[Answer]
        if lane.kind == "captions":
            captions = captioner.caption_encoded(encoded, lane.settings)
            is_calibrated = captioner.calibration is not None and is_same_search(lane.settings, captioner.decoding)
            answers = captioner.calibrated(captions) if is_calibrated else captions
        else:
            answers = captioner.explain_encoded(encoded, lane.settings, occlusion=lane.occlusion)
        for logprob in _logprobs(answers):
            if not math.isfinite(logprob):
                raise NoNumberError(
                    f"{captioner.about.name} computed a log-probability of {logprob} for this photo; its weights are "
                    "damaged, or too large."
                )
        done = time.monotonic()
        self._metrics.batch(lane.captioner, lane.kind, len(batch))
        for pending in batch:
            wait = pending.waited + started - pending.prepared
            self._metrics.stages({"wait": wait, "encode": is_encoded - started, "answer": done - is_encoded})
        return answers


def _logprobs(answers: Sequence[Answer]) -> Iterator[float]:
    """The log-probabilities of the captions in answers."""
    for answer in answers:
        for one in answer if isinstance(answer, list) else answer.captions:
            yield one.logprob
