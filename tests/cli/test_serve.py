"""`showtell serve`: its options, where it listens, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from showtell.serving.server import addresses, listen
from showtell.serving.settings import ServeSettings
from tests.cli.test_caption import run
from tests.serving.fakes import FakeEngine, photo_bytes
from tests.serving.servers import PATIENCE, read_all, running_server

TOKEN = "0123456789abcdef"


def test_a_port_that_is_taken_is_named_before_anything_is_opened(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = run(capsys, "serve", "nowhere", "--port", str(port))
    assert status == 2 and err == (
        f"showtell: Cannot listen on port {port} of 127.0.0.1: Address already in use; choose another port (0 takes a "
        "free one), or 127.0.0.1.\n"
    )


def test_without_the_extra_it_says_how_to_get_it(capsys, monkeypatch):
    missing = "uvicorn"
    for name in [name for name in sys.modules if name.startswith("showtell.serving.") or name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    status, _, err = run(capsys, "serve", "nowhere")
    assert status == 2 and err.startswith(f"showtell: showtell serve needs {missing}")
    assert err.endswith(': pip install "fastapi>=0.165" "uvicorn>=0.54".\n')


def test_addresses_have_the_token_and_are_those_of_this_machine():
    with listen(ServeSettings(port=0)) as listener:
        port = listener.getsockname()[1]
        assert addresses(ServeSettings(), listener) == [f"http://127.0.0.1:{port}/"]
    everywhere = ServeSettings(host="0.0.0.0", port=0, token="a token of 16 &?/")
    with listen(everywhere) as listener:
        first, *others = addresses(everywhere, listener)
        assert first == f"http://127.0.0.1:{listener.getsockname()[1]}/?token=a%20token%20of%2016%20%26%3F%2F"
        assert all(other.endswith(first[first.index("/?") :]) and "0.0.0.0" not in other for other in others)


def test_what_is_being_answered_is_finished_before_it_ends():
    engine = FakeEngine()
    answers = []
    with running_server(engine) as running:
        engine.go.clear()
        asked = {"content": photo_bytes(), "headers": {"Content-Type": "image/png"}, "timeout": PATIENCE}
        client = threading.Thread(target=lambda: answers.append(httpx.post(f"{running.url}/v1/captions", **asked)))
        client.start()
        while not engine.questions:
            time.sleep(0.01)
        running.server.handle_exit(signal.SIGTERM, None)
        while running.server.servers and running.server.servers[0].is_serving():
            time.sleep(0.01)
        assert not answers
        engine.release()
        client.join(PATIENCE)
    assert [answer.status_code for answer in answers] == [200]
    assert (running.server.interrupted, engine.state) == (False, "closed")


def test_a_second_interrupt_does_not_wait():
    engine = FakeEngine()
    with running_server(engine) as running:
        engine.go.clear()
        with running.connect(request(photo_bytes())) as connection:
            while not engine.questions:
                time.sleep(0.01)
            running.server.handle_exit(signal.SIGINT, None)
            running.server.handle_exit(signal.SIGINT, None)
            assert b"200 OK" not in read_all(connection)
    assert (running.server.interrupted, engine.cancelled, engine.state) == (True, 1, "closed")


def request(photo: bytes) -> bytes:
    head = "POST /v1/captions HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    return f"{head}Content-Length: {len(photo)}\r\n\r\n".encode() + photo


def test_a_client_that_goes_away_takes_its_question_back():
    engine = FakeEngine()
    with running_server(engine) as running:
        engine.go.clear()
        connection = running.connect(request(photo_bytes()))
        while not engine.questions:
            time.sleep(0.01)
        connection.close()
        deadline = time.monotonic() + PATIENCE
        while not engine.cancelled and time.monotonic() < deadline:
            time.sleep(0.01)
    assert engine.cancelled == 1


@contextmanager
def python(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the block, whatever happens there."""
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


STUCK = """
import asyncio, resource
from showtell.serving import engine, server
from showtell.serving.app import create_app
from showtell.serving.settings import ServeSettings
from tests.serving.fake_captioner import FakeCaptioner

server.GRACE, server.END, engine.CLOSING = 0.1, 1, 0.1
captioner, settings = FakeCaptioner(), ServeSettings(port=0)
serving = server.Server(create_app(engine.Engine({"fake": captioner}, settings), settings), settings)

def announce():
    captioner.preparing.close()  # every photo is stuck
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print(listener.getsockname()[1], flush=True)

with server.listen(settings) as listener:
    asyncio.run(serving.run_on(listener, announce))
"""


def test_neither_a_photo_that_is_never_read_nor_too_many_connections_keep_it_from_ending():
    """The client is told, the process ends though a thread does not, and the log stays short."""
    with python("-c", STUCK) as serving:
        assert serving.stdout is not None
        address = ("127.0.0.1", int(serving.stdout.readline()))
        with socket.create_connection(address, timeout=PATIENCE) as asking, ExitStack() as stack:
            asking.sendall(request(photo_bytes()))
            for _ in range(100):
                stack.enter_context(socket.create_connection(address, timeout=PATIENCE))
            time.sleep(0.2)
            started = time.monotonic()
            serving.send_signal(signal.SIGTERM)
            answer = read_all(asking)
            _, err = serving.communicate(timeout=PATIENCE)
        assert time.monotonic() - started < 60  # it takes one second; the photo would be waited for for minutes
        assert b" 503 " in answer and b"The server ended before it had the answer; ask again once it is" in answer
        assert serving.returncode == 0 and err.count("\n") == 1
        assert err.startswith("showtell: a connection cannot be taken: [Errno 24] Too many open files; others wait")


def test_as_a_process_it_says_where_it_is_and_answers_as_caption_does(capsys, tiny_checkpoint, photos, monkeypatch):
    monkeypatch.setenv("SHOWTELL_TOKEN", TOKEN)
    with python("-m", "showtell", "serve", str(tiny_checkpoint), "--port", "0") as serving:
        assert serving.stdout is not None
        address = serving.stdout.readline().strip()
        assert address.endswith(f"/?token={TOKEN}")
        url = f"{address.partition('?')[0]}v1/captions"
        headers = {"Content-Type": "image/png", "Authorization": f"Bearer {TOKEN}"}
        settings = {"num_beams": 3, "num_return_sequences": 2}
        answer = httpx.post(url, content=photos[0].read_bytes(), headers=headers, params=settings, timeout=PATIENCE)
        options = ["--num-beams", 3, "--num-return-sequences", 2, "--format", "json"]
        _, printed, _ = run(capsys, "caption", tiny_checkpoint, photos[0], *options)
        assert answer.json()["captions"] == json.loads(printed)[0]["captions"]
        serving.send_signal(signal.SIGINT)
        _, err = serving.communicate(timeout=PATIENCE)
        assert serving.returncode == 130
        ready = "showtell: ready; Ctrl-C ends it.\n"
        assert err.endswith(f"{ready}showtell: interrupted; what had been asked was answered.\n")
        assert TOKEN not in err
