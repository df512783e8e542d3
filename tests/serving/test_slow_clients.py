"""A real server and raw sockets: clients that are slow, endless, or speak no HTTP."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack

import httpx
import pytest

from tests.serving.conftest import PNG
from tests.serving.fakes import FakeEngine, photo_bytes
from tests.serving.servers import PATIENCE, running_server

HEAD = b"POST /v1/captions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def quick():
    """A server with little patience."""
    with running_server(FakeEngine(), body_timeout=0.3, max_body=50_000) as running:
        yield running


def problem(answer: bytes, status: int) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"application/problem+json" in head
    return json.loads(body)["detail"]


def test_a_body_that_does_not_come_is_cut(quick):
    for sent in (b"Content-Length: 100\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"):
        answer = quick.talk(HEAD + sent)
        assert problem(answer, 408) == "The body has not come within 0.3 seconds; send it faster, or a smaller one."


def test_headers_that_trickle_in_are_cut(quick):
    for sent in (b"", b"GET /healthz HT", GET):
        began = time.monotonic()
        assert quick.talk(sent) == b""
        assert time.monotonic() - began < PATIENCE
    with quick.connect(GET + b"\r\n") as connection:  # a further request of a connection
        assert connection.recv(12) == b"HTTP/1.1 200"
        connection.sendall(b"GET /hea")
        while connection.recv(1000):
            pass


def test_a_body_that_claims_too_much_is_refused_before_it_is_sent(quick):
    head = HEAD + b"Connection: close\r\nExpect: 100-continue\r\n"
    answer = quick.talk(head + b"Content-Length: 1000000000000\r\n\r\n")
    assert problem(answer, 413) == (
        "A body may have 50,000 bytes, and this one has 1,000,000,000,000 bytes; send a smaller one."
    )


def test_an_endless_body_is_cut_and_a_large_one_gets_its_answer(quick):
    chunk = b"2000\r\n" + bytes(0x2000) + b"\r\n"
    with quick.connect(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n") as connection:
        sent = 0
        try:
            while sent < 2**30:  # it must not come to that
                connection.sendall(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert sent < 2**30
    assert httpx.post(f"{quick.url}/v1/captions", content=bytes(500_000), headers=PNG).status_code == 413


def test_100_slow_clients_do_not_delay_others():
    with running_server(FakeEngine(), body_timeout=600) as running, ExitStack() as stack:
        for index in range(100):
            stack.enter_context(running.connect(GET if index % 2 else HEAD + b"Content-Length: 900\r\n\r\nx"))
        answer = httpx.post(f"{running.url}/v1/captions", content=photo_bytes(), headers=PNG, timeout=PATIENCE)
        assert answer.status_code == 200
        assert len(running.server.server_state.connections) >= 100


def test_many_large_bodies_at_a_time_do_not_fill_the_memory():
    with running_server(FakeEngine(), queue=1, max_body=1_500_000) as running:  # 2 MB for all

        def post_until(status: int, photo: bytes) -> httpx.Response:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                answer = httpx.post(f"{running.url}/v1/captions", content=photo, headers=PNG, timeout=PATIENCE)
                if answer.status_code == status:
                    return answer
            raise AssertionError(answer.text)

        begun = [running.connect(HEAD + b"Content-Length: 1500000\r\n\r\n" + bytes(900_000)) for _ in range(2)]
        try:
            refused = post_until(429, bytes(900_000))
        finally:
            for connection in begun:
                connection.close()
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["detail"].startswith("Bodies of 2 MB come in already; send the photo again in a moment.")
        post_until(200, photo_bytes() + bytes(900_000))
