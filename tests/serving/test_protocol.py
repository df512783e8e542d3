"""A real server and raw sockets: clients that are slow, endless, or speak no HTTP."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from tests.serving.fakes import FakeEngine, photo_bytes
from tests.serving.servers import PATIENCE, read_all, running_server

HEAD = b"POST /v1/captions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def quick():
    """A server with little patience."""
    with (
        pytest.MonkeyPatch.context() as patch,
        running_server(FakeEngine(), body_timeout=0.3, max_body=50_000) as running,
    ):
        patch.setattr("showtell.serving.guard.LINGER", 0.2)
        yield running


def problem(answer: bytes, status: int) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"application/problem+json" in head
    return json.loads(body)["detail"]


SLOW = {
    "nothing": (b"",),
    "half a line": (b"GET /heal",),
    "no end of headers": (GET,),
    "headers after a request": (GET + b"\r\n" + GET,),
}


@pytest.mark.parametrize("case", SLOW)
def test_headers_that_do_not_come_are_cut(quick, case):
    began = time.monotonic()
    answer = quick.talk(*SLOW[case])
    assert time.monotonic() - began < PATIENCE / 2
    last = answer[answer.rindex(b"HTTP/1.1 ") :]
    assert problem(last, 408) == "The headers have not come within 0.3 seconds."
    assert answer.count(b"HTTP/1.1 200") == (1 if case == "headers after a request" else 0)


def test_headers_that_trickle_in_are_cut(quick):
    with quick.connect(GET) as connection:
        connection.settimeout(0.05)
        answer = b""
        try:
            for _ in range(1000):
                connection.sendall(b"X")
                try:
                    answer += connection.recv(65536)
                    break
                except TimeoutError:
                    continue
            connection.settimeout(30)
            while part := connection.recv(65536):  # the body may come after the headers
                answer += part
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert problem(answer, 408) == "The headers have not come within 0.3 seconds."


@pytest.mark.parametrize(
    "sent",
    [HEAD + b"Content-Length: 100\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"],
    ids=["of a length", "in chunks"],
)
def test_a_body_that_does_not_come_is_cut(quick, sent):
    assert problem(quick.talk(sent), 408) == (
        "The body has not come within 0.3 seconds; send it faster, or a smaller photo."
    )


def test_a_body_that_claims_too_much_is_refused_before_it_is_sent(quick):
    answer = quick.talk(HEAD + b"Expect: 100-continue\r\nContent-Length: 1000000000000\r\n\r\n")
    assert problem(answer, 413) == (
        "A body may have 50,000 bytes, and this one has 1,000,000,000,000 bytes; send a smaller one."
    )


def test_an_endless_body_is_refused_while_it_comes(quick):
    chunk = b"2000\r\n" + bytes(0x2000) + b"\r\n"
    with quick.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n") as connection:
        sent = 0
        try:
            while sent < 2**34:  # it must not come to that
                connection.sendall(chunk)
                sent += len(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert sent < 2**34


def test_the_answer_to_a_large_body_arrives_although_the_body_is_not_read(quick):
    answer = httpx.post(f"{quick.url}/v1/captions", content=bytes(5_000_000), headers={"Content-Type": "image/png"})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_a_body_where_none_is_expected_does_not_hold_the_connection(quick):
    answer = quick.talk(GET + b"Content-Length: 40000\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 200 ")


JUNK = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "a length that is none": HEAD + b"Content-Length: 0x5\r\n\r\nabcde",
    "a line end in a header": b"GET / HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
    "long headers": GET + b"X: " + b"a" * 70_000,
    "a bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("case", JUNK)
def test_what_is_no_http_is_refused(quick, case):
    answer = quick.talk(JUNK[case])
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 408 ")), answer
    assert b"Traceback" not in answer


def test_a_websocket_is_answered_like_any_request(quick):
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n"
    )
    answer = quick.talk(GET + upgrade + b"\x81\x85\x00\x00\x00\x00hello")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"101" not in answer.split(b"\r\n")[0]


def test_200_slow_clients_do_not_delay_others():
    engine = FakeEngine()
    with running_server(engine, body_timeout=600) as running:
        slow = [running.connect(GET if index % 2 else HEAD + b"Content-Length: 900\r\n\r\n") for index in range(200)]
        try:
            with httpx.Client(base_url=running.url, timeout=PATIENCE) as client:
                for _ in range(20):
                    for connection in slow:
                        connection.sendall(b"x")
                    answer = client.post("/v1/captions", content=photo_bytes(), headers={"Content-Type": "image/png"})
                    assert answer.status_code == 200
            assert len(running.server.server_state.connections) >= 200
        finally:
            for connection in slow:
                connection.close()


def test_more_connections_than_allowed_cut_the_one_that_waits_longest(monkeypatch):
    monkeypatch.setattr("showtell.serving.protocol.TimedProtocol.max_connections", 3)
    with running_server(FakeEngine(), body_timeout=600) as running:
        waiting = [running.connect(b"GET") for _ in range(3)]
        answer = httpx.get(f"{running.url}/healthz", timeout=PATIENCE)
        assert answer.status_code == 200
        assert read_all(waiting[0]) == b""
        waiting[1].sendall(b" /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert read_all(waiting[1]).startswith(b"HTTP/1.1 200 ")
        for connection in waiting:
            connection.close()


def test_a_client_that_does_not_read_is_cut():
    with running_server(FakeEngine(), body_timeout=0.3) as running:
        with running.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            try:
                for _ in range(100_000):
                    connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                return
        raise AssertionError("it went on for ever")


def test_many_large_bodies_at_a_time_do_not_fill_the_memory():
    png = {"Content-Type": "image/png"}
    with running_server(FakeEngine(), queue=1, max_body=1_500_000) as running:  # 2 MB for all

        def post_until(status: int, photo: bytes) -> httpx.Response:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                answer = httpx.post(f"{running.url}/v1/captions", content=photo, headers=png, timeout=PATIENCE)
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
