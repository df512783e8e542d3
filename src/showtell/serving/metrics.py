"""What a server measures of itself, for Prometheus.

    showtell_queue_length             questions that wait, prepared or not
    showtell_running                  questions that are being computed
    showtell_batch_size               histogram of the photos in a batch, by captioner and kind
    showtell_stage_seconds            histogram of what a question spends in prepare, wait, encode and answer
    showtell_question_seconds         histogram from its arrival to its answer, by captioner and kind
    showtell_errors_total             questions without an answer, by the name of the error
    process_...                       memory, processor and open files of this process, where the system tells them

`encode` and `answer` are those of the question's batch; as a GPU is asynchronous, there `answer` has most of both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The numbers of one engine, in a registry of their own."""

    def __init__(self, waiting: Callable[[], int], running: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        Gauge("showtell_queue_length", "Questions that wait, prepared or not.", registry=registry).set_function(waiting)
        Gauge("showtell_running", "Questions that are being computed.", registry=registry).set_function(running)
        ProcessCollector(registry=registry)
        of_question = ("captioner", "kind")
        histogram = partial(Histogram, registry=registry)
        self.batch_size = histogram("showtell_batch_size", "Photos in a batch.", of_question, buckets=SIZES)
        self.stage = histogram("showtell_stage_seconds", "Time of a question by stage.", ("stage",), buckets=SECONDS)
        self.question = histogram("showtell_question_seconds", "Time to an answer.", of_question, buckets=SECONDS)
        self.errors = Counter("showtell_errors", "Questions without an answer.", ("error",), registry=registry)

    def render(self) -> bytes:
        """The text format of Prometheus."""
        return generate_latest(self.registry)
