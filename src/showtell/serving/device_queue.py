"""The questions to the captioners of one device: threads prepare their photos, and one thread answers them in batches.

    add -> unprepared -> (a reader) -> lane -> (the model's thread) -> answer

A lane has the prepared questions that can share a batch. The thread takes the lane whose first question has waited
longest, of those that are ready: full, or nothing more for it is on its way, or its first question has waited for
`max_wait`. So a batch is as large as what has come while the one before was computed, a question that comes alone does
not wait, and nobody who came later passes a rare setting.

Whoever is late or was forgotten is dropped before its photo is opened, and again before a batch is made. Photos are
prepared two batches ahead; of the others that wait there are the bytes that came.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from showtell.captioners.contract import Captioner
from showtell.decoding_config import DecodingConfig
from showtell.images.loading import READERS
from showtell.serving.engine import Answer, Kind, Question
from showtell.serving.metrics import Metrics

BATCHES_AHEAD = 2  # prepared photos, in batches
CLOSING_TIME = 10.0  # seconds for photos that are being opened at the end and that nobody wants
MEMORY = 0.9  # weight of the measured rate against that of the newest batch


class BatchKey(NamedTuple):
    """What the questions of a batch have in common."""

    kind: Kind
    captioner: str
    settings: DecodingConfig
    occlusion: str | None
    attention: bool


@dataclass(eq=False)
class Pending:
    """A question that waits for its answer."""

    question: Question
    captioner: Captioner
    is_calibrated: bool  # whether the captioner's calibration is about these settings
    deadline: float  # on the clock of time.monotonic, as all times here
    answer: asyncio.Future[Answer]
    arrived: float = field(default_factory=time.monotonic)
    key: BatchKey = field(init=False)
    is_forgotten: bool = False  # nobody waits for it any more
    photo: Any = None  # prepared
    prepared: float = 0.0  # when
    waited: float = 0.0  # seconds before it was prepared

    def __post_init__(self) -> None:
        asked = self.question
        self.key = BatchKey(asked.kind, asked.captioner, asked.settings, asked.occlusion, asked.attention)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for its answer."""
        return not self.is_forgotten and time.monotonic() < self.deadline


class DeviceQueue:
    """Questions to the captioners of one device, and the threads that answer them."""

    def __init__(self, max_batch: int, max_wait: float, metrics: Metrics, readers: int = READERS) -> None:
        """An empty queue, without threads yet.

        Args:
            max_batch: most photos in a batch.
            max_wait: most seconds that a prepared photo waits for others of its batch.
            metrics: what it measures.
            readers: threads that open and prepare photos.
        """
        self._max_batch = max_batch
        self._max_wait = max_wait
        self._metrics = metrics
        self._lock = threading.Lock()
        self._photo_may_come = threading.Condition(self._lock)
        self._batch_may_be_ready = threading.Condition(self._lock)
        self._unprepared: dict[Pending, None] = {}  # dicts are the sets that keep their order
        self._preparing: dict[Pending, None] = {}
        self._lanes: dict[BatchKey, dict[Pending, None]] = {}
        self._on_the_way: Counter[BatchKey] = Counter()  # unprepared or being prepared
        self._running = 0
        self._is_closing = False
        self._busy_since = 0.0  # or since the last batch was done
        self._rate = 0.0  # answers per second while there is work; 0 before the first
        self._model_thread = threading.Thread(target=self._answer_batches, daemon=True)
        self._readers = [threading.Thread(target=self._prepare_photos, daemon=True) for _ in range(readers)]

    # --- on the thread of the event loop ---

    def start(self) -> None:
        """Start the threads."""
        for thread in (self._model_thread, *self._readers):
            thread.start()

    @property
    def waiting(self) -> int:
        """Questions that wait, prepared or not."""
        with self._lock:
            return self._waiting

    @property
    def running(self) -> int:
        """Questions that are being computed."""
        return self._running

    @property
    def seconds_to_work_off(self) -> float:
        """How long those that wait will take, at the rate of late; 1 if nothing was answered yet."""
        return self.waiting / self._rate if self._rate else 1.0

    def add(self, pending: Pending) -> None:
        """Let a question wait."""
        with self._lock:
            if not self._waiting and not self._running:
                self._busy_since = time.monotonic()
            self._unprepared[pending] = None
            self._on_the_way[pending.key] += 1
            self._photo_may_come.notify()

    def forget(self, pending: Pending) -> None:
        """Nobody waits for the answer any more: it is not computed, unless it is being computed already."""
        with self._lock:
            pending.is_forgotten = True
            if pending in self._unprepared:
                del self._unprepared[pending]
                self._no_longer_on_the_way(pending)
            elif pending in self._preparing:
                self._batch_may_be_ready.notify()
            elif pending in self._lanes.get(pending.key, ()):
                self._leave_lane(pending)
                self._photo_may_come.notify()

    def close(self) -> None:
        """Answer those that wait, then end the threads; blocks until then.

        Opening a photo cannot be stopped. A reader that is at one which nobody wants has `CLOSING_TIME` to get done;
        then it is left to itself, a daemon that does not keep the process from ending.
        """
        with self._lock:
            self._is_closing = True
            self._photo_may_come.notify_all()
            self._batch_may_be_ready.notify_all()
        if self._model_thread.ident is None:  # never started
            return
        self._model_thread.join()
        end = time.monotonic() + CLOSING_TIME
        for reader in self._readers:
            reader.join(max(0.0, end - time.monotonic()))

    # --- with the lock ---

    @property
    def _waiting(self) -> int:
        return len(self._unprepared) + self._prepared_or_nearly

    @property
    def _prepared_or_nearly(self) -> int:
        return len(self._preparing) + sum(map(len, self._lanes.values()))

    @property
    def _is_awaited(self) -> bool:
        """Whether anybody still waits for an answer that is not being computed."""
        return any(
            pending.is_wanted
            for waiting in (self._unprepared, self._preparing, *self._lanes.values())
            for pending in waiting
        )

    @property
    def _has_room(self) -> bool:
        """Whether another photo may be prepared."""
        return self._prepared_or_nearly < BATCHES_AHEAD * self._max_batch

    def _no_longer_on_the_way(self, pending: Pending) -> None:
        self._on_the_way[pending.key] -= 1
        if not self._on_the_way[pending.key]:
            del self._on_the_way[pending.key]
        self._batch_may_be_ready.notify()

    def _leave_lane(self, pending: Pending) -> None:
        lane = self._lanes[pending.key]
        del lane[pending]
        if not lane:
            del self._lanes[pending.key]

    # --- on the threads of the readers ---

    def _prepare_photos(self) -> None:
        while (pending := self._next_photo()) is not None:
            started = time.monotonic()
            error: Exception | None = None
            try:
                pending.photo = pending.captioner.open_photo(pending.question.photo)
            except Exception as raised:  # noqa: BLE001  (an ImageError, or a defect that this photo brings to light)
                error = raised
            pending.waited, pending.prepared = started - pending.arrived, time.monotonic()
            self._metrics.stages({"prepare": pending.prepared - started})
            with self._lock:
                del self._preparing[pending]
                if error is None and not pending.is_forgotten:
                    self._lanes.setdefault(pending.key, {})[pending] = None
                else:
                    self._photo_may_come.notify()
                self._no_longer_on_the_way(pending)
            if error is not None and not pending.is_forgotten:  # its event loop may have ended
                self._deliver([(pending, error)])

    def _next_photo(self) -> Pending | None:
        """The question whose photo is to be prepared next; None: there will be none."""
        with self._lock:
            while True:
                while self._unprepared and self._has_room:
                    pending = next(iter(self._unprepared))
                    del self._unprepared[pending]
                    if pending.is_wanted:
                        self._preparing[pending] = None
                        return pending
                    self._no_longer_on_the_way(pending)
                if self._is_closing and not self._unprepared:
                    return None
                self._photo_may_come.wait()

    # --- on the thread of the model ---

    def _answer_batches(self) -> None:
        while batch := self._next_batch():
            results = self._answer(batch)
            with self._lock:
                self._running = 0
                now = time.monotonic()
                rate = len(batch) / max(now - self._busy_since, 1e-6)
                self._rate = MEMORY * self._rate + (1 - MEMORY) * rate if self._rate else rate
                self._busy_since = now
            self._deliver(list(zip(batch, results, strict=True)))

    def _next_batch(self) -> list[Pending]:
        """The questions to be answered next; none: there will be none."""
        with self._lock:
            while True:
                for pending in [pending for lane in self._lanes.values() for pending in lane if not pending.is_wanted]:
                    self._leave_lane(pending)
                    self._photo_may_come.notify()
                now = time.monotonic()
                heads = {key: next(iter(lane)) for key, lane in self._lanes.items()}
                ready = [key for key, head in heads.items() if self._is_ready(key, head, now)]
                if ready:
                    lane = self._lanes[min(ready, key=lambda key: heads[key].arrived)]
                    batch = list(lane)[: self._max_batch]
                    for pending in batch:
                        self._leave_lane(pending)
                    self._running = len(batch)
                    self._photo_may_come.notify_all()
                    return batch
                if self._is_closing and not self._is_awaited:
                    self._photo_may_come.notify_all()
                    return []
                ends = [head.prepared + self._max_wait for head in heads.values()]
                self._batch_may_be_ready.wait(max(0.0, min(ends) - now) if ends else None)

    def _is_ready(self, key: BatchKey, head: Pending, now: float) -> bool:
        """Whether a lane, of which this is the first question, has nothing to wait for."""
        return (
            not self._on_the_way[key]
            or len(self._lanes[key]) >= self._max_batch
            or now - head.prepared >= self._max_wait
            or not self._has_room
        )

    def _answer(self, batch: Sequence[Pending]) -> list[Answer | Exception]:
        """The answers of a batch. If it fails its questions are asked one by one, so that only the guilty one fails."""
        try:
            return list(self._answer_together(batch))
        except Exception as error:  # noqa: BLE001  (whatever a model raises is the answer of who asked)
            if len(batch) == 1:
                return [error]
        return [answer for pending in batch for answer in self._answer([pending])]

    def _answer_together(self, batch: Sequence[Pending]) -> Sequence[Answer]:
        first, started = batch[0], time.monotonic()
        key, captioner = first.key, first.captioner
        encoded = captioner.encode_prepared([pending.photo for pending in batch])
        is_encoded = time.monotonic()
        answers: Sequence[Answer]
        if key.kind == "captions":
            captions = captioner.caption_encoded(encoded, key.settings, attention=key.attention)
            answers = captioner.calibrated(captions) if first.is_calibrated else captions
        elif key.kind == "logprobs":
            answers = captioner.logprobs_encoded(encoded, [one.question.texts for one in batch], key.settings)
        else:
            answers = captioner.explain_encoded(encoded, key.settings, occlusion=key.occlusion)
        done = time.monotonic()
        self._metrics.batch(key.captioner, key.kind, len(batch))
        for pending in batch:
            wait = pending.waited + started - pending.prepared
            self._metrics.stages({"wait": wait, "encode": is_encoded - started, "answer": done - is_encoded})
        return answers

    def _deliver(self, results: Sequence[tuple[Pending, Answer | Exception]]) -> None:
        """Hand answers to those who wait for them, on their thread."""

        def hand_over() -> None:
            for pending, result in results:
                if pending.answer.done():
                    continue
                if isinstance(result, Exception):
                    pending.answer.set_exception(result)
                else:
                    pending.answer.set_result(result)

        results[0][0].answer.get_loop().call_soon_threadsafe(hand_over)
