"""Captions from a server that speaks OpenAI's chat completions: our own, and one that fails in every way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from showtell.captioners import Captioner
from showtell.captioners.openai_server import MAX_UNANSWERED
from showtell.errors import CheckpointError, ImageError, UsageError
from showtell.serving.engine import Engine
from showtell.serving.settings import ServeSettings
from tests.cli.test_caption import run
from tests.serving.servers import running_server
from tests.toys import http_server

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)  # the pauses of its client


def test_captions_and_confidence_are_those_of_the_model_that_our_server_has(tiny_checkpoint, photos):
    local = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    with running_server(Engine({"tiny": local}, ServeSettings())) as running:
        remote = Captioner.from_pretrained(f"openai:{running.url}#tiny")
        captions = remote.caption(photos[:6])
        assert Captioner.from_pretrained(f"openai:{running.url}/v1/").about.name == "tiny"  # the only one
        with pytest.raises(CheckpointError, match='has no model "tyny"; did you mean "tiny"'):
            Captioner.from_pretrained(f"openai:{running.url}#tyny")
        with pytest.raises(UsageError, match="has no search beam; choose one of greedy, sample"):
            remote.caption(photos[0], num_beams=3)
        with pytest.raises(UsageError, match="no attention, explanations or"):
            remote.explain(photos[0])
    for (other,), (own,) in zip(captions, local.caption(photos[:6]), strict=True):
        assert (other.text, other.finished, len(other.words)) == (own.text, own.finished, len(own.words))
        assert other.logprob == pytest.approx(own.logprob, abs=1e-4)
        assert other.confidence == pytest.approx(own.confidence, abs=1e-5)


Answer = tuple[int, str, bytes]  # status, type, body
JSON, HTML = "application/json", "text/html"
GOOD = json.dumps({
    "id": "1", "object": "chat.completion", "created": 0, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A dog.\n"}}],
}).encode()  # fmt: skip


class FaultyServer:
    """Answers each question about captions as `answer` says, by the number of the question."""

    def __init__(self) -> None:
        self.name = ""
        self.answer: Callable[[int], Answer] = lambda number: (200, JSON, GOOD)
        self.asked: list[dict[str, object]] = []
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.headers["Authorization"] == f"Bearer {KEY}"
                self.reply(200, JSON, json.dumps({"object": "list", "data": [{"id": "m"}]}).encode())

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.asked.append(question)
                    number = len(outer.asked) - 1
                self.reply(*outer.answer(number))

            def reply(self, status: int, kind: str, body: bytes) -> None:
                if not status:  # nothing
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body) + 100 * (kind == "half")))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = kind == "half"

        self.handler = Handler


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    faulty = FaultyServer()
    with http_server(faulty.handler) as address:
        faulty.name = f"openai:{address}/v1#m"
        yield faulty


def test_without_log_probabilities_there_is_no_confidence(server, photos, capsys, tmp_path):
    out = tmp_path / "captions.csv"
    status, _, err = run(capsys, "caption", server.name, *photos[:6], "--out", out)
    assert status == 0 and err.count("tells no log-probabilities, so captions of m have no confidence.") == 1
    assert out.read_text().splitlines()[1:] == [f"{photo},A dog.,,," for photo in photos[:6]]
    (text, picture) = server.asked[0]["messages"][0]["content"]
    assert text["text"] == "Describe this photo in one sentence." and server.asked[0]["temperature"] == 0
    assert picture["image_url"]["url"].startswith("data:image/png;base64,") and server.asked[0]["logprobs"] is True
    server.answer = lambda number: (
        (400, JSON, b'{"error": {"message": "no logprobs"}}') if number == 6 else (200, JSON, GOOD)
    )
    assert run(capsys, "caption", server.name, photos[0])[:2] == (0, f"{photos[0]}\tA dog.\n")


FAULTS: dict[str, Answer] = {
    "429": (429, JSON, b'{"error": {"message": "slow down"}}'),
    "500": (500, JSON, b'{"error": {"message": "key %s is broken"}}' % KEY.encode()),
    "half an answer": (200, "half", GOOD[:50]),
    "JSON cut off": (200, JSON, GOOD[:50]),
    "no caption": (200, JSON, b'{"choices": []}'),
    "another answer": (200, JSON, b'{"detail": "hello"}'),
    "HTML": (200, HTML, b"<html>Log in</html>"),
    "nothing": (0, "", b""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_server_does_not_answer_is_asked_for_again_by_the_same_command(
    fault, server, photos, capsys, tmp_path, caplog
):
    """The third photo gets no answer; the others are captioned and kept, and the key is nowhere."""
    out = tmp_path / "captions.jsonl"
    pictures: list[object] = []

    def answer(number: int) -> Answer:
        picture = server.asked[number]["messages"][0]["content"][1]["image_url"]["url"]
        pictures.extend([] if picture in pictures else [picture])
        return FAULTS[fault] if pictures.index(picture) == 2 else (200, JSON, GOOD)

    server.answer = answer
    given = ["caption", server.name, *photos[:6], "--out", out, "--batch-size", 1]
    status, _, err = run(capsys, *given)
    assert status == 2 and not out.exists()
    assert f"{out}.part keeps 5 photos; the same command asks for the others again." in err
    assert f"1 of 6 files could not be captioned: {photos[2]} has no caption, for the server has not answered (" in err
    count = len(server.asked)
    server.answer = lambda number: (200, JSON, GOOD)
    assert run(capsys, *given)[0] == 0
    assert len(server.asked) == count + 1
    assert [json.loads(line)["captions"][0]["text"] for line in out.read_text().splitlines()] == ["A dog."] * 6
    everything = err + caplog.text + "".join(path.read_text() for path in tmp_path.iterdir())
    assert KEY not in everything


def test_a_server_that_has_gone_ends_the_run_and_a_photo_that_it_refuses_does_not(server, photos, capsys, tmp_path):
    out = tmp_path / "captions.jsonl"
    server.answer = lambda number: (200, JSON, GOOD) if number < 20 else (0, "", b"")
    status, _, err = run(capsys, "caption", server.name, *photos, "--out", out, "--batch-size", 10)
    assert status == 2 and len(server.asked) < 20 + 5 * (MAX_UNANSWERED + 10)
    assert "photos in a row; see to the server, and the same command resumes." in err
    server.answer = lambda number: (200, JSON, GOOD)
    count = len(server.asked)
    assert run(capsys, "caption", server.name, *photos, "--out", out)[0] == 0
    assert len(server.asked) == count + 40
    server.answer = lambda number: (413, JSON, b'{"error": {"message": "too large"}}')
    with pytest.raises(ImageError, match=r"for the server refuses it \(.*too large"):
        Captioner.from_pretrained(server.name).caption(photos[0])


REFUSED = {
    "openai:": '"" is no URL; name a server as openai:http://127.0.0.1:8000/v1#MODEL.',
    "openai:ftp://a/b#m": '"ftp://a/b" is no URL; name a server as ',
    f"openai:http://me:{KEY}@127.0.0.1/v1#m": "A URL with a name, a password or a key in it is not taken; put the key",
    f"openai:http://127.0.0.1/v1?key={KEY}#m": "A URL with a name, a password or a key in it is not taken; put the key",
    "openai:http://127.0.0.1:9/v1#m": "http://127.0.0.1:9/v1 does not answer as a server of models does (",
}


def test_what_is_no_server_is_refused_at_once(capsys, photos):
    for name, sentence in REFUSED.items():
        status, out, err = run(capsys, "caption", name, photos[0])
        assert (status, out) == (2, "") and err.startswith(f"showtell: {sentence}") and err.count("\n") == 1
        assert KEY not in err
