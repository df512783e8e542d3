"""A server under more load than it can take, beside slow senders, and with broken photos among good ones.

`benchmarks/serve.py` has the same at full size, with times.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import httpx
import pytest

from showtell.captions import caption_result
from showtell.errors import ImageError
from showtell.images.photo import IN_MEMORY
from showtell.serving.batcher import LocalEngine
from showtell.serving.settings import ServeSettings
from tests.serving.fake_captioner import FakeCaptioner
from tests.serving.servers import PATIENCE, Running, running_server
from tests.serving.test_equality import TEXTS, assert_same, toy

PNG = {"Content-Type": "image/png"}
SMALL = {"queue": 8, "max_batch": 4}


def client_of(running: Running) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=running.url, timeout=PATIENCE, limits=limits, headers=PNG, trust_env=False)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_under_overload_some_are_sent_away_and_the_others_answered():
    captioner = FakeCaptioner()
    engine = LocalEngine({"only": captioner}, ServeSettings(**SMALL))

    async def run(running: Running) -> list[httpx.Response]:
        captioner.encoding.close()
        async with client_of(running) as client:
            first = asyncio.create_task(client.post("/v1/captions", content=b"first"))
            await asyncio.to_thread(captioner.encoding.wait_until_reached)
            others = [asyncio.create_task(client.post("/v1/captions", content=b"%d" % number)) for number in range(60)]
            await until(lambda: sum(task.done() for task in others) == 52)  # while the model is busy
            unread = await client.post("/v1/chat/completions", content=b"{", headers={"Content-Type": "text/json"})
            assert unread.status_code == 429 and "photos wait already" in unread.json()["error"]["message"]
            assert "connection" not in unread.headers  # it can be used again
            assert (await client.get("/readyz")).status_code == 200
            captioner.encoding.open()
            replies = await asyncio.gather(*others)
            assert (await first).status_code == 200
            return replies

    with running_server(engine, **SMALL) as running:
        replies = asyncio.run(run(running))
    statuses = [reply.status_code for reply in replies]
    assert (statuses.count(200), statuses.count(429)) == (8, 52)
    for number, reply in enumerate(replies):
        if reply.status_code == 429:
            assert int(reply.headers["Retry-After"]) >= 1
            assert reply.headers["Content-Type"] == "application/problem+json"
            assert reply.json()["detail"].startswith("8 photos wait already, and no more may; ask again in ")
        else:
            assert reply.json()["captions"][0]["text"] == f"b'{number}' 1"
    computed = list(itertools.chain(*captioner.batches))
    assert len(computed) == 1 + 1 + 8  # with the engine's own question and the first
    assert captioner.most_outstanding <= 3 * SMALL["max_batch"]


def test_who_sends_slowly_keeps_nobody_waiting():
    captioner = FakeCaptioner()
    engine = LocalEngine({"only": captioner}, ServeSettings())

    async def run(running: Running) -> list[int]:
        async with client_of(running) as client:
            replies = await asyncio.gather(*(client.post("/v1/captions", content=b"%d" % n) for n in range(20)))
            return [reply.status_code for reply in replies]

    beginning = b"POST /v1/captions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
    with running_server(engine) as running:
        slow = [running.connect(beginning[: 1 + number % len(beginning)]) for number in range(100)]
        slow += [running.connect(beginning + b"Content-Length: 1000\r\n\r\n", b"x") for _ in range(100)]
        assert asyncio.run(run(running)) == [200] * 20
        assert engine.status()["waiting"] == 0  # what has not come whole takes no place in the queue
        for connection in slow:
            connection.close()
    assert len(list(itertools.chain(*captioner.batches))) == 1 + 20


@pytest.mark.parametrize("requests", [80, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_good_photo_is_answered_right_and_every_broken_one_has_its_sentence(tiny_scenes: Path, requests: int):
    captioner = toy("nic", "small_cnn", TEXTS)
    photos = [path.read_bytes() for path in sorted((tiny_scenes / "images").iterdir())[:30]]
    expected: dict[bytes, Any] = {photo: caption_result("photo", captioner.caption(photo)) for photo in photos}
    broken = [b"no image at all", photos[0][: len(photos[0]) // 2], b"\x89PNG\r\n\x1a\n", b"<svg/>"]
    for photo in broken:
        with pytest.raises(ImageError) as refused:
            captioner.open_photo(photo)
        expected[photo] = str(refused.value).replace(IN_MEMORY, "photo", 1)
    asked = [
        broken[number // 20 % len(broken)] if number % 20 == 3 else photos[number % len(photos)]
        for number in range(requests)
    ]

    async def run(running: Running) -> list[httpx.Response]:
        remaining, replies = iter(enumerate(asked)), {}
        async with client_of(running) as client:

            async def one_client() -> None:
                for number, photo in remaining:
                    replies[number] = await client.post("/v1/captions", content=photo)

            await asyncio.gather(*(one_client() for _ in range(32)))
        return [replies[number] for number in range(requests)]

    with running_server(LocalEngine({"toy": captioner}, ServeSettings())) as running:
        replies = asyncio.run(run(running))
    for photo, reply in zip(asked, replies, strict=True):
        if photo in broken:
            assert (reply.status_code, reply.json()["detail"]) == (422, expected[photo])
        else:
            assert reply.status_code == 200
            assert_same(expected[photo], reply.json())
