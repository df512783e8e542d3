"""The queue: what shares a batch, who is sent away, and what is never computed."""

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from showtell.captions import Caption
from showtell.errors import ImageError, NoCaptionError, UsageError
from showtell.serving.engine import ClosingError, Engine, Question, QueueFullError, TooLateError
from showtell.serving.settings import ServeSettings
from tests.serving.fake_captioner import FakeCaptioner


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


@asynccontextmanager
async def engine_of(**settings: Any) -> AsyncIterator[tuple[Engine, FakeCaptioner]]:
    """A started engine and its captioner, called "0", whose own first question is forgotten."""
    captioner = FakeCaptioner()
    engine = Engine({"0": captioner}, ServeSettings(**settings))
    await engine.start()
    captioner.prepared.clear()
    captioner.batches.clear()
    try:
        yield engine, captioner
    finally:
        captioner.preparing.open()  # a test that fails does not wait at its own gates
        captioner.encoding.open()
        await engine.close()


def question(photo: bytes, **changes: Any) -> Question:
    """About a photo, for the first captioner."""
    asked = {"kind": "captions", "captioner": "0", "settings": FakeCaptioner().decoding} | changes
    return Question(photo=photo, **asked)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks and threads go on until something is so; a test that waits for ever is ended by its time-out."""
    while not condition():
        await asyncio.sleep(0.001)


async def hold(engine: Engine, captioner: FakeCaptioner) -> asyncio.Task[Any]:
    """Keep the model busy with a photo called "first", until the gate `encoding` is opened."""
    captioner.encoding.close()
    task = asyncio.create_task(engine.ask(question(b"first")))
    await asyncio.to_thread(captioner.encoding.wait_until_reached)
    return task


def ask(engine: Engine, photos: list[bytes], **changes: Any) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(engine.ask(question(photo, **changes))) for photo in photos]


def texts(answers: list[list[Caption]]) -> list[str]:
    return [captions[0].text for captions in answers]


@on_a_loop
async def test_a_batch_has_questions_of_one_kind_with_equal_settings():
    async with engine_of() as (engine, captioner):
        first = await hold(engine, captioner)
        groups = [
            ask(engine, [b"1", b"2"]), ask(engine, [b"3", b"4"], settings=captioner.settings(num_beams=3)),
            ask(engine, [b"7", b"8"], kind="explanation"), ask(engine, [b"9"], kind="explanation", saliency="pixels"),
        ]  # fmt: skip
        await until(lambda: captioner.outstanding == 8)
        captioner.encoding.open()
        assert texts([await first]) == ["b'first' 1"]
        plain, with_beams, explained, occluded = [await asyncio.gather(*tasks) for tasks in groups]
    assert texts(plain) + texts(with_beams) == ["b'1' 1", "b'2' 1", "b'3' 3", "b'4' 3"]
    models = [explanation.model for explanation in (*explained, *occluded)]
    assert models == ["b'7' None", "b'8' None", "b'9' pixels"]
    assert sorted(map(sorted, captioner.batches)) == [[b"1", b"2"], [b"3", b"4"], [b"7", b"8"], [b"9"], [b"first"]]


@on_a_loop
async def test_a_question_alone_does_not_wait_for_others():
    async with engine_of(max_wait=10) as (engine, _):
        started = time.monotonic()
        await engine.ask(question(b"1"))
        assert time.monotonic() - started < 9


@pytest.mark.parametrize(("max_wait", "batches"), [(10, [[b"1", b"2"]]), (0, [[b"1"], [b"2"]])])
@on_a_loop
async def test_it_waits_at_most_max_wait_for_what_is_on_its_way(max_wait, batches):
    async with engine_of(max_wait=max_wait) as (engine, captioner):
        busy = await hold(engine, captioner)  # so that "1" is not computed before "2" comes
        (one,) = ask(engine, [b"1"])
        await until(lambda: captioner.outstanding == 2)
        captioner.preparing.close()
        (two,) = ask(engine, [b"2"])
        await asyncio.to_thread(captioner.preparing.wait_until_reached)
        captioner.encoding.open()
        await busy
        if max_wait == 0:
            await one  # while "2" is still being prepared
        captioner.preparing.open()
        await asyncio.gather(one, two)
    assert captioner.batches == [[b"first"], *batches]


@on_a_loop
async def test_nobody_who_came_later_passes_a_rare_setting():
    async with engine_of(max_batch=4, queue=100) as (engine, captioner):
        first = await hold(engine, captioner)
        common = ask(engine, [b"early 0", b"early 1"])
        await until(lambda: [bool(one.prepared) for one in engine.waiting] == [True] * 2)
        (other,) = ask(engine, [b"rare"], settings=captioner.settings(num_beams=2))
        await until(lambda: [bool(one.prepared) for one in engine.waiting] == [True] * 3)
        common += ask(engine, [f"late {number}".encode() for number in range(40)])
        # a full batch of the common setting, which waits for nobody
        await until(lambda: sum(bool(one.prepared) for one in engine.waiting) >= 5)
        captioner.encoding.open()
        await asyncio.gather(first, other, *common)
    assert captioner.batches[1][:2] == [b"early 0", b"early 1"]
    assert captioner.batches[2] == [b"rare"]


@on_a_loop
async def test_the_queue_is_bounded():
    async with engine_of(queue=3, max_batch=1) as (engine, captioner):
        first = await hold(engine, captioner)
        waiting = ask(engine, [b"1", b"2", b"3"])
        await until(lambda: len(engine.waiting) == 3)
        with pytest.raises(QueueFullError, match=r"^3 photos wait already, and no more may; ask again in a moment\."):
            await engine.ask(question(b"4"))
        captioner.encoding.open()
        await asyncio.gather(first, *waiting)
        await engine.ask(question(b"5"))


@on_a_loop
async def test_no_more_than_two_batches_are_prepared_ahead():
    async with engine_of(max_batch=4, queue=100) as (engine, captioner):
        first = await hold(engine, captioner)
        waiting = ask(engine, [f"{number}".encode() for number in range(60)])
        await until(lambda: captioner.outstanding == 12)  # a batch that is computed, and two
        assert (len(engine.waiting), engine.running) == (60, 1)
        captioner.encoding.open()
        await asyncio.gather(first, *waiting)
    assert captioner.most_outstanding <= 4 + 2 * 4
    assert sum(map(len, captioner.batches)) == 61


@on_a_loop
async def test_what_cannot_be_answered_is_refused_at_once():
    async with engine_of(max_words=100) as (engine, captioner):
        with pytest.raises(UsageError, match=r'^fake has no saliency method "m"; Known: pixels'):
            await engine.ask(question(b"1", kind="explanation", saliency="m"))
        with pytest.raises(UsageError, match=r"^The question asks for up to 120 words "):
            await engine.ask(question(b"1", settings=captioner.settings(num_beams=6)))
    assert captioner.prepared == []


@pytest.mark.parametrize(("how", "where"), [("gone", "preparing"), ("gone", "model"), ("late", "model")])
@on_a_loop
async def test_what_nobody_waits_for_is_not_computed_and_makes_room(how, where):
    async with engine_of(timeout=0.2 if how == "late" else 60) as (engine, captioner):
        first = await hold(engine, captioner)
        if where == "preparing":
            captioner.preparing.close()
        (task,) = ask(engine, [b"unwanted"])
        if where == "preparing":
            await until(lambda: b"unwanted" in captioner.prepared)
        else:
            await until(lambda: captioner.outstanding == 2)
        if how == "gone":
            task.cancel()
        with pytest.raises(asyncio.CancelledError if how == "gone" else TooLateError):
            await task
        captioner.preparing.open()
        captioner.encoding.open()
        await asyncio.gather(first, return_exceptions=True)
        await until(lambda: not engine.waiting)
    assert b"unwanted" not in itertools.chain(*captioner.batches)


@on_a_loop
async def test_who_brings_a_bad_photo_fails_alone():
    async with engine_of() as (engine, captioner):
        first = await hold(engine, captioner)
        tasks = ask(engine, [b"1", b"broken", b"poison", b"nan", b"2", b"go go go go"])
        await until(lambda: captioner.outstanding == 6)
        captioner.encoding.open()
        await first
        good, broken, poison, nan, other, gibberish = await asyncio.gather(*tasks, return_exceptions=True)
        assert texts([good, other]) == ["b'1' 1", "b'2' 1"]
        assert isinstance(broken, ImageError) and isinstance(poison, RuntimeError)
        assert "its weights are damaged" in str(nan)
        assert "image in memory has no caption, for all that the captioner says repeats itself." in str(gibberish)
        with pytest.raises(NoCaptionError):
            await engine.ask(replace(question(b"go go go go"), kind="explanation"))
    assert sorted(captioner.batches[1]) == [b"1", b"2", b"go go go go", b"nan", b"poison"]
    assert sorted(captioner.batches[2:-1]) == [[b"1"], [b"2"], [b"go go go go"], [b"nan"], [b"poison"]]


@on_a_loop
async def test_close_answers_those_who_wait_and_refuses_others():
    async with engine_of(max_batch=2) as (engine, captioner):
        first = await hold(engine, captioner)
        waiting = ask(engine, [b"1", b"2", b"3", b"broken"])
        await until(lambda: captioner.outstanding == 4)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosingError, match=r"^The server is ending and takes no new questions"):
            await engine.ask(question(b"4"))
        assert not engine.is_ready
        captioner.encoding.open()
        await closing
        results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert texts(results[:4]) == ["b'first' 1", "b'1' 1", "b'2' 1", "b'3' 1"]
    assert isinstance(results[4], ImageError)
