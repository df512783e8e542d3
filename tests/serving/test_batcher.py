"""The engine of this process: what shares a batch, who is sent away, and what is never computed."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from showtell.captioners import Captioner
from showtell.captions import Caption
from showtell.errors import ImageError, UsageError
from showtell.serving import device_queue
from showtell.serving.engine import ClosingError, Engine, Question, QueueFullError, TooLateError
from showtell.serving.settings import ServeSettings
from tests.serving.fake_captioner import FakeCaptioner, Gate


@asynccontextmanager
async def engine_of(captioner: Captioner | dict[str, Captioner], **settings: Any) -> AsyncIterator[Engine]:
    """A started engine, whose own first questions are forgotten."""
    captioners = captioner if isinstance(captioner, dict) else {"only": captioner}
    engine = Engine(captioners, ServeSettings(**settings))
    await engine.start()
    for one in captioners.values():
        if isinstance(one, FakeCaptioner):
            one.prepared.clear()
            one.batches.clear()
    try:
        yield engine
    finally:
        for one in captioners.values():
            if isinstance(one, FakeCaptioner):  # a test that fails shall not wait at its own gates
                one.preparing.open()
                one.encoding.open()
        await engine.close()


def question(photo: bytes, **changes: Any) -> Question:
    """About a photo, for the captioner called "only"."""
    asked = {"kind": "captions", "captioner": "only", "settings": FakeCaptioner().decoding} | changes
    return Question(photo=photo, **asked)


async def reached(captioner: FakeCaptioner, name: str = "encoding") -> None:
    """Wait until a thread stands at a closed gate."""
    await asyncio.to_thread(getattr(captioner, name).wait_until_reached)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks and threads go on until something is so; a test that waits for ever is ended by its time-out."""
    while not condition():
        await asyncio.sleep(0.001)


async def hold(engine: Engine, captioner: FakeCaptioner) -> asyncio.Task[Any]:
    """Keep the model busy with a photo called "first", until the gate `encoding` is opened."""
    captioner.encoding.close()
    task = asyncio.create_task(engine.ask(question(b"first")))
    await reached(captioner)
    return task


def ask(engine: Engine, photos: list[bytes], **changes: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(engine.ask(question(photo, **changes))) for photo in photos]


def texts(answers: list[list[Caption]]) -> list[str]:
    return [captions[0].text for captions in answers]


# --- batches ---


def test_what_comes_while_a_batch_is_computed_is_the_next_batch():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, max_batch=8) as engine:
            first = await hold(engine, captioner)
            others = ask(engine, [b"1", b"2", b"3"])
            await until(lambda: captioner.outstanding == 4)
            captioner.encoding.open()
            answers = await asyncio.gather(first, *others)
        assert texts(answers) == ["b'first' 1", "b'1' 1", "b'2' 1", "b'3' 1"]
        assert [sorted(batch) for batch in captioner.batches] == [[b"first"], [b"1", b"2", b"3"]]

    asyncio.run(run())


def test_a_batch_has_questions_of_one_kind_with_equal_settings():
    async def run() -> None:
        captioner = FakeCaptioner()
        beams = captioner.settings(num_beams=3)
        async with engine_of(captioner) as engine:
            first = await hold(engine, captioner)
            groups = [
                ask(engine, [b"1", b"2"]),
                ask(engine, [b"3", b"4"], settings=beams),
                ask(engine, [b"5"], kind="logprobs", texts=("x", "y")),
                ask(engine, [b"6"], kind="logprobs", texts=("z",)),
                ask(engine, [b"7", b"8"], kind="explanation"),
                ask(engine, [b"9"], kind="explanation", occlusion="pixels"),
            ]
            await until(lambda: captioner.outstanding == 10)
            captioner.encoding.open()
            await first
            plain, with_beams, two, one, explained, occluded = [await asyncio.gather(*tasks) for tasks in groups]
        assert texts(plain) == ["b'1' 1", "b'2' 1"]
        assert texts(with_beams) == ["b'3' 3", "b'4' 3"]
        assert [text.text for text in two[0]] == ["b'5' x", "b'5' y"]
        assert [text.text for text in one[0]] == ["b'6' z"]
        assert [explanation.model for explanation in explained] == ["b'7' None", "b'8' None"]
        assert occluded[0].model == "b'9' pixels"
        together = {frozenset(batch) for batch in captioner.batches}
        pairs = [{b"1", b"2"}, {b"3", b"4"}, {b"5", b"6"}, {b"7", b"8"}, {b"9"}, {b"first"}]
        assert together == set(map(frozenset, pairs))

    asyncio.run(run())


def test_a_question_alone_does_not_wait_for_others():
    async def run() -> float:
        captioner = FakeCaptioner()
        async with engine_of(captioner, max_wait=10) as engine:
            started = time.monotonic()
            await engine.ask(question(b"1"))
            return time.monotonic() - started

    assert asyncio.run(run()) < 9


@pytest.mark.parametrize(("max_wait", "batches"), [(10, [[b"1", b"2"]]), (0, [[b"1"], [b"2"]])])
def test_it_waits_at_most_max_wait_for_what_is_on_its_way(max_wait, batches):
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, max_wait=max_wait) as engine:
            busy = await hold(engine, captioner)  # so that "1" is not computed before "2" comes
            (one,) = ask(engine, [b"1"])
            await until(lambda: captioner.outstanding == 2)
            captioner.preparing.close()
            (two,) = ask(engine, [b"2"])
            await reached(captioner, "preparing")
            captioner.encoding.open()
            await busy
            if max_wait == 0:
                await one  # while "2" is still being prepared
            captioner.preparing.open()
            await asyncio.gather(one, two)
        assert captioner.batches == [[b"first"], *batches]

    asyncio.run(run())


def test_nobody_who_came_later_passes_a_rare_setting():
    async def run() -> None:
        captioner = FakeCaptioner()
        rare = captioner.settings(num_beams=2)
        async with engine_of(captioner, max_batch=4, queue=100) as engine:
            first = await hold(engine, captioner)
            common = ask(engine, [f"early {number}".encode() for number in range(2)])
            await until(lambda: captioner.outstanding == 3)
            (other,) = ask(engine, [b"rare"], settings=rare)
            await until(lambda: captioner.outstanding == 4)
            common += ask(engine, [f"late {number}".encode() for number in range(40)])
            await asyncio.sleep(0)
            captioner.encoding.open()
            await asyncio.gather(first, other, *common)
        assert captioner.batches[1][:2] == [b"early 0", b"early 1"]
        assert captioner.batches[2] == [b"rare"]

    asyncio.run(run())


def test_captioners_of_two_devices_do_not_wait_for_each_other():
    async def run() -> None:
        one, two = FakeCaptioner("cpu"), FakeCaptioner("meta")
        async with engine_of({"only": one, "other": two}) as engine:
            first = await hold(engine, one)
            assert texts([await engine.ask(question(b"x", captioner="other"))]) == ["b'x' 1"]
            assert not first.done()
            one.encoding.open()
            await first

    asyncio.run(run())


# --- who is sent away ---


def test_the_queue_is_bounded():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, queue=3, max_batch=1) as engine:
            first = await hold(engine, captioner)
            waiting = ask(engine, [b"1", b"2", b"3"])
            await until(lambda: engine.status()["waiting"] == 3)
            with pytest.raises(QueueFullError, match=r"^3 photos wait already, and no more may; ask again in \d+ s\."):
                await engine.ask(question(b"4"))
            captioner.encoding.open()
            await asyncio.gather(first, *waiting)
            assert engine.status() == {"ready": True, "waiting": 0, "running": 0}
            await engine.ask(question(b"5"))
        assert b"4" not in captioner.prepared

    asyncio.run(run())


def test_the_bytes_that_wait_are_bounded():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, queue=2, max_body=5_000_000) as engine:  # at most 5 MB in all
            first = await hold(engine, captioner)
            (large,) = ask(engine, [b"x" * 4_000_000])
            await until(lambda: engine.status()["waiting"] == 1)
            with pytest.raises(QueueFullError, match=r"^Photos of 4 MB wait already, and no more than 5 MB may; ask"):
                await engine.ask(question(b"y" * 2_000_000))
            captioner.encoding.open()
            await asyncio.gather(first, large)
            await engine.ask(question(b"y" * 2_000_000))

    asyncio.run(run())


def test_the_time_to_try_again_is_that_which_the_queue_takes_at_the_measured_rate(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    fake_time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("showtell.serving.device_queue.time", fake_time)
    monkeypatch.setattr("showtell.serving.batcher.time", fake_time)

    class Slow(FakeCaptioner):
        def encode_prepared(self, photos: Any) -> Any:
            clock.now += 2.0  # a batch takes two seconds
            return super().encode_prepared(photos)

    async def run() -> float:
        captioner = Slow()
        async with engine_of(captioner, max_batch=1, queue=6, timeout=3000) as engine:  # of its own first question: 0.5
            first = await hold(engine, captioner)
            waiting = ask(engine, [f"{number}".encode() for number in range(6)])
            await until(lambda: engine.status()["waiting"] == 6)
            with pytest.raises(QueueFullError) as refused:
                await engine.ask(question(b"x"))
            captioner.encoding.open()
            await asyncio.gather(first, *waiting)
            return refused.value.retry_after

    assert asyncio.run(run()) == pytest.approx(12.0)  # six photos, half a photo a second


def test_no_more_than_two_batches_are_prepared_ahead():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, max_batch=4, queue=100) as engine:
            first = await hold(engine, captioner)
            waiting = ask(engine, [f"{number}".encode() for number in range(60)])
            await until(lambda: captioner.outstanding == 9)
            assert engine.status() == {"ready": True, "waiting": 60, "running": 1}
            captioner.encoding.open()
            await asyncio.gather(first, *waiting)
        assert captioner.most_outstanding <= 4 + 2 * 4  # running, and prepared
        assert sum(map(len, captioner.batches)) == 61

    asyncio.run(run())


def test_what_cannot_be_answered_is_refused_at_once():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner) as engine:
            for changes, sentence in [
                ({"captioner": "onyl"}, 'There is no captioner "onyl"; did you mean "only"? Known: only.'),
                ({"kind": "explanation", "occlusion": "m"}, 'fake has no occlusion method "m"; Known: pixels.'),
                ({"attention": True}, "fake has no attention to show; leave attention out."),
                ({"kind": "logprobs"}, "Log-probabilities are those of given texts; give at least one."),
            ]:
                with pytest.raises(UsageError) as refused:
                    await engine.ask(question(b"1", **changes))
                assert str(refused.value) == sentence
        assert captioner.prepared == []

    asyncio.run(run())


# --- what is never computed ---


@pytest.mark.parametrize("where", ["in front of the readers", "in front of the model"])
def test_what_is_late_is_not_computed(where):
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner) as engine:
            first = await hold(engine, captioner)
            busy = []
            if where == "in front of the readers":
                captioner.preparing.close()
                busy = ask(engine, [b"busy", b"busy"])
                await until(lambda: captioner.prepared.count(b"busy") == 2)
            with pytest.raises(TooLateError, match=r"^The answer was not there within 0.05 seconds and is not"):
                await engine.ask(question(b"late", timeout=0.05))
            captioner.preparing.open()
            captioner.encoding.open()
            await asyncio.gather(first, *busy)
        assert (b"late" in captioner.prepared) == (where == "in front of the model")
        assert b"late" not in itertools.chain(*captioner.batches)

    asyncio.run(run())


@pytest.mark.parametrize("where", ["in front of the readers", "while it is prepared", "in front of the model"])
def test_what_is_cancelled_is_not_computed_and_makes_room(where):
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner, queue=3) as engine:
            first = await hold(engine, captioner)
            captioner.preparing.close()
            busy = ask(engine, [b"busy", b"busy"]) if where == "in front of the readers" else []
            await until(lambda: captioner.prepared.count(b"busy") == len(busy))
            if where == "in front of the model":
                captioner.preparing.open()
            (gone,) = ask(engine, [b"gone"])
            await asyncio.sleep(0)
            if where == "while it is prepared":
                await until(lambda: b"gone" in captioner.prepared)
            if where == "in front of the model":
                await until(lambda: captioner.outstanding == 2)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            captioner.preparing.open()
            await until(lambda: engine.status()["waiting"] == len(busy))
            captioner.encoding.open()
            await asyncio.gather(first, *busy)
        assert (b"gone" in captioner.prepared) == (where != "in front of the readers")
        assert b"gone" not in itertools.chain(*captioner.batches)

    asyncio.run(run())


# --- what fails ---


def test_a_bad_photo_fails_alone():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner) as engine:
            first = await hold(engine, captioner)
            tasks = ask(engine, [b"1", b"broken", b"2"])
            with pytest.raises(ImageError, match=r"^broken is no image\.$"):
                await tasks[1]
            await until(lambda: captioner.outstanding == 3)
            captioner.encoding.open()
            await first
            assert texts([await tasks[0], await tasks[2]]) == ["b'1' 1", "b'2' 1"]
        assert [sorted(batch) for batch in captioner.batches] == [[b"first"], [b"1", b"2"]]

    asyncio.run(run())


def test_a_photo_that_makes_the_model_fail_fails_alone():
    async def run() -> None:
        captioner = FakeCaptioner()
        async with engine_of(captioner) as engine:
            first = await hold(engine, captioner)
            tasks = ask(engine, [b"1", b"poison", b"2"])
            await until(lambda: captioner.outstanding == 4)
            captioner.encoding.open()
            await first
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[1], RuntimeError)
            assert texts([results[0], results[2]]) == ["b'1' 1", "b'2' 1"]
            assert engine.status() == {"ready": True, "waiting": 0, "running": 0}
        assert sorted(captioner.batches[1]) == [b"1", b"2", b"poison"]
        assert sorted(captioner.batches[2:]) == [[b"1"], [b"2"], [b"poison"]]

    asyncio.run(run())


def test_a_captioner_that_cannot_answer_its_own_question_does_not_start():
    class Failing(FakeCaptioner):
        def encode_prepared(self, photos: Any) -> Any:
            raise RuntimeError("no memory")

    async def run() -> None:
        engine = Engine({"only": Failing()}, ServeSettings())
        with pytest.raises(RuntimeError, match="no memory"):
            await engine.start()
        assert not engine.status()["ready"]
        await engine.close()

    asyncio.run(run())


# --- the end ---


def test_close_answers_those_who_wait_and_refuses_others():
    async def run() -> None:
        captioner = FakeCaptioner()
        engine = Engine({"only": captioner}, ServeSettings(max_batch=2))
        await engine.start()
        first = await hold(engine, captioner)
        waiting = ask(engine, [b"1", b"2", b"3", b"broken"])
        await until(lambda: captioner.outstanding == 4)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosingError, match=r"^The server is ending and takes no new questions"):
            await engine.ask(question(b"4"))
        assert not engine.status()["ready"]
        captioner.encoding.open()
        await closing
        results = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert texts(results[:4]) == ["b'first' 1", "b'1' 1", "b'2' 1", "b'3' 1"]
        assert isinstance(results[4], ImageError)
        await engine.close()  # again

    asyncio.run(run())


def test_close_does_not_wait_for_ever_for_a_photo_that_nobody_wants(monkeypatch):
    monkeypatch.setattr(device_queue, "CLOSING_TIME", 0.05)
    before = set(threading.enumerate())

    async def run() -> None:
        captioner = FakeCaptioner()
        engine = Engine({"only": captioner}, ServeSettings())
        await engine.start()
        captioner.preparing.close()
        (task,) = ask(engine, [b"broken"])
        await reached(captioner, "preparing")
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.1)
        assert not closing.done()  # somebody wants it
        task.cancel()
        await closing
        left = [thread for thread in threading.enumerate() if thread not in before and not is_of_asyncio(thread)]
        assert [thread.daemon for thread in left] == [True]  # at the gate, and in nobody's way
        readers.extend(left)
        gates.append(captioner.preparing)

    def is_of_asyncio(thread: threading.Thread) -> bool:
        return thread.name.startswith("asyncio")

    readers: list[threading.Thread] = []
    gates: list[Gate] = []
    asyncio.run(run())
    gates[0].open()  # after the event loop has ended: the reader's error is nobody's
    readers[0].join()


def test_an_engine_that_was_never_started_can_be_closed():
    engine = Engine({"only": FakeCaptioner()}, ServeSettings())
    assert not engine.status()["ready"]
    asyncio.run(engine.close())


# --- metrics ---


def test_metrics_count_what_happened():
    async def run() -> Engine:
        captioner = FakeCaptioner()
        async with engine_of(captioner, queue=4) as engine:
            first = await hold(engine, captioner)
            tasks = ask(engine, [b"1", b"2", b"broken", b"3"])
            with pytest.raises(ImageError):
                await tasks[2]
            await until(lambda: captioner.outstanding == 4)
            assert sample(engine, "showtell_queue_length") == 3
            assert sample(engine, "showtell_running") == 1
            (gone,) = ask(engine, [b"gone"])
            await asyncio.sleep(0)
            with pytest.raises(QueueFullError):
                await engine.ask(question(b"4"))
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            captioner.encoding.open()
            await asyncio.gather(first, *tasks, return_exceptions=True)
        return engine

    engine = asyncio.run(run())
    of_captions = {"captioner": "only", "kind": "captions"}
    # the first of all is the engine's own
    assert sample(engine, "showtell_batch_size_count", **of_captions) == 3
    assert sample(engine, "showtell_batch_size_sum", **of_captions) == 5
    assert sample(engine, "showtell_batch_size_bucket", **of_captions, le="1.0") == 2
    assert sample(engine, "showtell_batch_size_bucket", **of_captions, le="4.0") == 3
    assert sample(engine, "showtell_question_seconds_count", **of_captions) == 5
    for stage in ("wait", "encode", "answer"):
        assert sample(engine, "showtell_stage_seconds_count", stage=stage) == 5
    errors = {error: sample(engine, "showtell_errors_total", error=error) for error in ERRORS}
    assert errors == {"ImageError": 1, "QueueFullError": 1, "CancelledError": 1}
    assert sample(engine, "showtell_queue_length") == sample(engine, "showtell_running") == 0
    assert sample(engine, "process_resident_memory_bytes") > 2**20


ERRORS = ("ImageError", "QueueFullError", "CancelledError")


def sample(engine: Engine, name: str, **labels: str) -> float:
    """A number of /metrics."""
    families = text_string_to_metric_families(engine.metrics.render().decode())
    (value,) = [one.value for family in families for one in family.samples if (one.name, one.labels) == (name, labels)]
    return float(value)
