"""The engine of replicas: a replica that dies costs no answer. Without Ray its replicas are stand-ins."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import psutil
import pytest

from showtell.captioners import Captioner
from showtell.errors import ImageError, MissingDependencyError
from showtell.serving.engine import ClosingError, LostError, Question, QueueFullError, TooLateError
from showtell.serving.problems import status_of
from showtell.serving.ray_engine import MAX_TRIES, RayEngine, require_ray_serve
from showtell.serving.settings import ServeSettings
from tests.bulk.test_actors import needs_ray
from tests.serving.fake_captioner import FakeCaptioner
from tests.serving.test_batcher import question, until


class ActorDiedError(Exception):
    """In place of Ray's error about a process that has died."""


class Response:
    """What a replica will have answered."""

    def __init__(self, answer: Callable[[Question], Any], asked: Question) -> None:
        self._future: asyncio.Future[Any] = asyncio.ensure_future(self._compute(answer, asked))
        self.is_cancelled = False

    async def _compute(self, answer: Callable[[Question], Any], asked: Question) -> Any:
        result = answer(asked)
        return await result if asyncio.iscoroutine(result) else result

    def __await__(self) -> Generator[Any, None, Any]:
        return self._future.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


class Handle:
    """Stand-ins for replicas: they answer what a function says, or die of what it raises."""

    def __init__(self, answer: Callable[[Question], Any]) -> None:
        self.responses: list[Response] = []
        self.asked: list[Question] = []
        self._answer = answer
        self.ask = types.SimpleNamespace(remote=self._remote)

    def _remote(self, asked: Question) -> Response:
        self.asked.append(asked)
        self.responses.append(Response(self._answer, asked))
        return self.responses[-1]


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes an engine whose replicas answer what a function says."""
    exceptions = types.ModuleType("ray.exceptions")
    exceptions.RayActorError = ActorDiedError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray.exceptions", exceptions)
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))

    @asynccontextmanager
    async def engine_of(
        answer: Callable[[Question], Any], count: int = 2, **settings: Any
    ) -> AsyncIterator[tuple[RayEngine, Handle]]:
        handle = Handle(answer)
        monkeypatch.setattr(RayEngine, "_deploy", lambda self: handle)
        engine = RayEngine({"only": FakeCaptioner()}, ServeSettings(**settings), count)
        assert engine.status()["ready"] is False
        await engine.start()
        yield engine, handle
        await engine.close()

    return engine_of


def test_a_question_whose_replica_died_is_asked_of_another(replicas):
    async def run() -> None:
        deaths = [ActorDiedError("killed"), ActorDiedError("killed")]

        def answer(asked: Question) -> str:
            if deaths:
                raise deaths.pop()
            return "answer"

        async with replicas(answer) as (engine, handle):
            assert await engine.ask(question(b"1")) == "answer"
            assert [asked.photo for asked in handle.asked] == [b"1"] * 3
            assert engine.status() == {"ready": True, "waiting": 0, "running": 0, "replicas": 2}

    asyncio.run(run())


def test_a_question_that_kills_every_replica_is_given_up(replicas):
    async def run() -> None:
        def answer(asked: Question) -> str:
            raise ActorDiedError("killed")

        async with replicas(answer) as (engine, handle):
            with pytest.raises(LostError, match=r"^3 replicas died while they had this question; ask again, and look"):
                await engine.ask(question(b"1"))
            assert len(handle.asked) == MAX_TRIES == 3
            assert status_of(LostError("")) == 503
            assert b'showtell_errors_total{error="LostError"} 1.0' in engine.metrics.render()

    asyncio.run(run())


def test_what_a_replica_refuses_is_refused(replicas):
    async def run() -> None:
        async with replicas(lambda asked: ImageError("It is no image.")) as (engine, _):
            with pytest.raises(ImageError, match=r"^It is no image\.$"):
                await engine.ask(question(b"1"))

    asyncio.run(run())


def test_the_questions_of_all_replicas_are_bounded_together(replicas):
    async def run() -> None:
        go = asyncio.Event()

        async def answer(asked: Question) -> str:
            await go.wait()
            return "answer"

        async with replicas(answer, max_batch=1, queue=3) as (engine, handle):
            asked = [asyncio.ensure_future(engine.ask(question(b"%d" % number))) for number in range(5)]
            await until(lambda: len(handle.asked) == 5)
            assert engine.status() == {"ready": True, "waiting": 3, "running": 2, "replicas": 2}
            with pytest.raises(QueueFullError, match=r"^3 photos wait already, and no more may; ask again in 1 s\.$"):
                await engine.ask(question(b"6"))
            go.set()
            assert await asyncio.gather(*asked) == ["answer"] * 5
            assert len(handle.asked) == 5

    asyncio.run(run())


def test_replicas_are_told_how_long_somebody_waits_and_when_nobody_does(replicas):
    async def run() -> None:
        async def never(asked: Question) -> str:
            await asyncio.Event().wait()
            return ""

        async with replicas(never, timeout=0.05) as (engine, handle):
            with pytest.raises(TooLateError, match=r"^The answer was not there within 0\.05 seconds"):
                await engine.ask(question(b"1"))
            assert 0 < handle.asked[0].timeout <= 0.05
            gone = asyncio.ensure_future(engine.ask(question(b"2", timeout=1000)))
            await until(lambda: len(handle.asked) == 2)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert [response.is_cancelled for response in handle.responses] == [True, True]
            assert engine.status()["waiting"] == 0

    asyncio.run(run())


def test_closing_waits_for_answers_and_takes_no_questions(replicas):
    async def run() -> None:
        go = asyncio.Event()

        async def answer(asked: Question) -> str:
            await go.wait()
            return "answer"

        async with replicas(answer) as (engine, handle):
            asked = asyncio.ensure_future(engine.ask(question(b"1")))
            await until(lambda: len(handle.asked) == 1)
            closing = asyncio.ensure_future(engine.close())
            await until(lambda: engine.status()["ready"] is False)
            with pytest.raises(ClosingError):
                await engine.ask(question(b"2"))
            assert not closing.done()
            go.set()
            await closing
            assert asked.result() == "answer"

    asyncio.run(run())


def test_without_ray_serve_the_install_line_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r'^Replicas need Ray Serve; pip install "showtell\[ray\]"\.$'):
        require_ray_serve()


@needs_ray
@pytest.mark.slow
def test_two_replicas_one_killed_and_every_question_answered(tiny_checkpoint, tiny_scenes, tmp_path):
    """The command, asked by 16 clients at once while a replica is killed: the captions are those of this process."""
    photos = [path.read_bytes() for path in sorted((tiny_scenes / "images").iterdir())[:20]]
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    wanted = [captioner.caption(photo)[0] for photo in photos]
    command = [sys.executable, "-m", "showtell", "serve", str(tiny_checkpoint), "--port", "0"]
    errors = tmp_path / "errors"
    with errors.open("w") as stderr:
        server = subprocess.Popen(
            [*command, "--engine", "ray", "--replicas", "2"], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert url, errors.read_text()
        limits = httpx.Limits(max_connections=16)
        with httpx.Client(base_url=url, timeout=200, limits=limits) as client, ThreadPoolExecutor(16) as pool:

            def ask(photo: bytes) -> Any:
                answer = client.post("/v1/captions", content=photo, headers={"Content-Type": "image/png"})
                assert answer.status_code == 200, answer.text
                return json.loads(answer.text)["captions"][0]

            asked = [pool.submit(ask, photo) for photo in photos * 20]
            asked[16].result()
            replicas = [one for one in psutil.Process(server.pid).children(recursive=True) if is_replica(one)]
            assert len(replicas) == 2
            replicas[0].kill()
            assert not asked[-1].done()
            answers = [one.result() for one in asked]
            broken = client.post("/v1/captions", content=b"text", headers={"Content-Type": "image/png"})
            assert broken.json()["detail"] == "photo is not an image: it holds text."
        for answer, caption in zip(answers, wanted * 20, strict=True):
            assert answer["text"] == caption.text
            assert answer["logprob"] == pytest.approx(caption.logprob, abs=1e-5)
        processes = psutil.Process(server.pid).children(recursive=True)
        server.terminate()
        assert server.wait(60) == 0, errors.read_text()
        assert psutil.wait_procs(processes, timeout=60)[1] == []
    finally:
        server.kill()
        server.communicate()


def is_replica(process: psutil.Process) -> bool:
    return "ServeReplica" in " ".join(process.cmdline())
