"""Captions from a server that speaks OpenAI's chat completions, and fails in every way."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.captioners import Captioner, openai_server
from showtell.captioners.openai_server import MAX_UNANSWERED, caption_text
from showtell.errors import CheckpointError, ImageError, UsageError
from tests.cli.test_caption import run
from tests.toys import http_server

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)  # the pauses of its client


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
        self.models = '{"object": "list", "data": [{"id": "m"}]}'
        self.answer: Callable[[int], Answer] = lambda number: (200, JSON, GOOD)
        self.asked: list[dict[str, object]] = []
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                assert self.headers["Authorization"] == f"Bearer {KEY}"
                self.reply(200, JSON, outer.models.encode())

            def do_POST(self) -> None:
                assert self.path == "/v1/chat/completions"  # nothing is sent elsewhere
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.asked.append(question)
                    number = len(outer.asked) - 1
                self.reply(*outer.answer(number))

            def reply(self, status: int, kind: str, body: bytes) -> None:
                if not status:  # nothing
                    self.close_connection = True
                    return
                if kind == "drops":  # one in 0.05 seconds, for ever
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n" + b"\r\n" * (status == 200))
                    with suppress(OSError):
                        while True:
                            self.wfile.write(b" ")
                            time.sleep(0.05)
                    return
                self.send_response(status)
                self.send_header("Content-Type", JSON)
                if status == 307:
                    self.send_header("Location", "/v1/elsewhere")
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


def test_a_server_is_asked_what_it_can_do_and_for_a_model_that_it_has(server, photos):
    remote = Captioner.from_pretrained(server.name)
    assert Captioner.from_pretrained(server.name.replace("/v1#m", "")).about.name == "m"  # the only one
    with pytest.raises(CheckpointError, match=r'has no model "n"; '):
        Captioner.from_pretrained(server.name.replace("#m", "#n"))
    with pytest.raises(UsageError, match="has no search beam; choose one of greedy, sample"):
        remote.caption(photos[0], num_beams=3)
    with pytest.raises(UsageError, match="no attention, explanations or"):
        remote.explain(photos[0])
    remote.caption(photos[0], search="sample", temperature=0.5, top_p=0.9, seed=3, num_return_sequences=2, max_length=7)
    asked = {"temperature": 0.5, "top_p": 0.9, "seed": 3, "n": 2, "max_tokens": 7}
    assert asked.items() <= server.asked[0].items()


def test_without_log_probabilities_there_is_no_confidence(server, photos, capsys, tmp_path):
    out = tmp_path / "captions.csv"
    status, _, err = run(capsys, "caption", server.name, *photos[:6], "--out", out)
    assert status == 0 and err.count("tells no usable log-probabilities, so captions of m have no confidence.") == 1
    assert out.read_text().splitlines()[1:] == [f"{photo},A dog.,,,,captioner,dog" for photo in photos[:6]]
    (text, picture) = server.asked[0]["messages"][0]["content"]
    assert text["text"] == "Describe this photo in one sentence." and server.asked[0]["temperature"] == 0
    assert picture["image_url"]["url"].startswith("data:image/png;base64,") and server.asked[0]["logprobs"] is True
    refusal = 400, JSON, b'{"error": {"message": "no logprobs"}}'
    server.answer = lambda number: refusal if number == 6 else (200, JSON, GOOD)
    assert run(capsys, "caption", server.name, photos[0])[:2] == (0, f"{photos[0]}\tA dog.\n")


def answer_of(content: object, finish_reason: str | None = "stop", logprobs: object = None, **more: object) -> Answer:
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "finish_reason": finish_reason, "message": message, "logprobs": logprobs}
    return 200, JSON, json.dumps({"object": "chat.completion", "choices": [choice]}).encode()


FAULTS: dict[str, Answer] = {
    "429": (429, JSON, b'{"error": {"message": "slow down"}}'),
    "500": (500, JSON, b'{"error": {"message": "key %s is broken"}}' % KEY.encode()),
    "half an answer": (200, "half", GOOD[:50]),
    "JSON cut off": (200, JSON, GOOD[:50]),
    "no caption": (200, JSON, b'{"choices": []}'),
    "another answer": (200, JSON, b'{"detail": "hello"}'),
    "HTML": (200, HTML, b"<html>Log in</html>"),
    "nothing": (0, "", b""),
    "depth": (200, JSON, b"[" * 100_000),
    "choices that are none": (200, JSON, b'{"choices": [1]}'),
    "a redirection": (307, JSON, b""),
    "drops": (200, "drops", GOOD),
    "drops of headers": (1, "drops", b""),
}
NO_CAPTION: dict[str, tuple[Answer, str]] = {
    "no text": (answer_of(""), "no text, as it ended by stop"),
    "null": (answer_of(None, None), "no text, as it ended by itself"),
    "marks": (answer_of('"..."\u200b'), "no text, as it ended by stop"),
    "blanks": (answer_of(" \n\t", "length"), "no text up to its last token; raise max_length"),
    "a refusal": (answer_of(None, refusal="I cannot help."), 'it refuses, "I cannot help"'),
    "a refusal as text": (answer_of("I’m sorry, but I can't assist."), 'it refuses, "I’m sorry, but I can\'t assist"'),
    "a filter": (answer_of("A man s", "content_filter"), 'it refuses, "A man s"'),
    "thoughts beside": (answer_of(None, "length", reasoning_content="Hm"), "thoughts alone up to its last token; r"),
    "thoughts": (answer_of("<think>Hm, a man", "length"), "thoughts alone up to its last token; raise max_length"),
}


def test_a_photo_without_an_answer_has_an_error_that_says_why(server, photos, monkeypatch):
    monkeypatch.setattr(openai_server, "RETRIES", 1)
    captioner = Captioner.from_pretrained(server.name)
    why = {fault: (answer, "has not answered (") for fault, answer in FAULTS.items()}
    why["a redirection"] = (FAULTS["a redirection"], "it redirects to another address, and nothing is sent there).")
    for fault, (answer, reason) in (why | NO_CAPTION).items():
        monkeypatch.setattr(openai_server, "SECONDS", 0.3 if "drops" in fault else 60)
        server.answer = lambda number, answer=answer: answer
        ((_, error),) = captioner.caption_photos(photos[:1])
        assert isinstance(error, ImageError) and f"{photos[0]} has no caption, for the server " in str(error), fault
        assert reason in str(error) and KEY not in str(error), fault
        server.answer = lambda number: (200, JSON, GOOD)
        assert captioner.caption(photos[0])[0].text == "A dog.", fault


@pytest.mark.parametrize("faulty", [FAULTS["500"], NO_CAPTION["no text"][0]], ids=["no answer", "no caption"])
def test_the_same_command_asks_for_what_was_not_answered(faulty, server, photos, capsys, tmp_path, caplog, monkeypatch):
    """The third photo gets no answer; the others are captioned and kept, and the key is nowhere."""
    monkeypatch.setattr(openai_server, "RETRIES", 1)
    out = tmp_path / "captions.jsonl"
    pictures: list[object] = []

    def answer(number: int) -> Answer:
        picture = server.asked[number]["messages"][0]["content"][1]["image_url"]["url"]
        pictures.extend([] if picture in pictures else [picture])
        return faulty if pictures.index(picture) == 2 else (200, JSON, GOOD)

    server.answer = answer
    given = ["caption", server.name, *photos[:6], "--out", out, "--batch-size", 1]
    status, _, err = run(capsys, *given)
    assert status == 2 and not out.exists()
    assert f"{out}.part keeps 5 photos; the same command asks for the others again." in err
    assert f"1 of 6 files could not be captioned: {photos[2]} has no caption, for the server " in err
    count = len(server.asked)
    server.answer = lambda number: (200, JSON, GOOD)
    assert run(capsys, *given)[0] == 0
    assert len(server.asked) == count + 1
    assert [json.loads(line)["captions"][0]["text"] for line in out.read_text().splitlines()] == ["A dog."] * 6
    assert KEY not in err + caplog.text + "".join(path.read_text() for path in tmp_path.iterdir())


def test_a_server_that_has_gone_ends_the_run_and_a_photo_that_it_refuses_does_not(
    server, photos, capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr(openai_server, "RETRIES", 1)
    out = tmp_path / "captions.jsonl"
    server.answer = lambda number: (200, JSON, GOOD) if number < 20 else (0, "", b"")
    status, _, err = run(capsys, "caption", server.name, *photos, "--out", out, "--batch-size", 10)
    assert status == 2 and len(server.asked) < 20 + 2 * (MAX_UNANSWERED + 10)
    assert "photos in a row; see to the server, and the same command resumes." in err
    server.answer = lambda number: (200, JSON, GOOD)
    count = len(server.asked)
    assert run(capsys, "caption", server.name, *photos, "--out", out)[0] == 0
    assert len(server.asked) == count + 40
    server.answer = lambda number: (413, JSON, b'{"error": {"message": "too large"}}')
    with pytest.raises(ImageError, match=r"for the server refuses it \(.*too large"):
        Captioner.from_pretrained(server.name).caption(photos[0])


THOUGHTS = [  # how models mark them: the thoughts, then the caption
    *("<think>{}</think>\n\n{}", "{}\n</think>\n{}", "<thinking>{}</thinking>{}", "<Thought>{}</Thought>{}"),
    *("<seed:think>{}</seed:think>{}", "◁think▷{}◁/think▷{}", "[THINK]{}[/THINK]{}"),
    *("<think>{}</think><answer>{}</answer>", "<think>{}</think><|begin_of_box|>{}<|end_of_box|>"),
]
LETTERS = st.characters(categories=("L", "N", "P", "Zs"), exclude_characters="<>[]◁▷|｜")


@given(marks=st.sampled_from(THOUGHTS), thought=st.text(LETTERS), caption=st.text(LETTERS), is_cut=st.booleans())
def test_thoughts_are_no_part_of_a_caption(marks, thought, caption, is_cut):
    caption = " ".join(f"A {caption}".split())
    assert caption_text(caption) == caption
    if not is_cut:
        assert caption_text(marks.format(f"They want {thought}", caption)) == caption
    elif not marks.startswith("{}"):  # cut off before the end of the thoughts
        assert caption_text(marks.partition("{}")[0] + f"They want {thought}") == ""


def test_answers_with_thoughts_or_too_many_have_their_caption_and_its_tokens(server, photos):
    thoughts = [("<think>", -5.0), ("Hm", -5.0), ("</think>", -5.0)]
    pieces = [*thoughts, ("A", -0.5), (" dog", -0.25), (".", 0.0), ("", -0.25)]
    logprobs = {"content": [{"token": token, "logprob": logprob} for token, logprob in pieces]}
    captioner = Captioner.from_pretrained(server.name)
    beside = answer_of("A dog.", logprobs=logprobs, reasoning_content="Hm")
    for answer in (answer_of("<think>Hm</think>\n\nA dog.", logprobs=logprobs), beside):
        server.answer = lambda number, answer=answer: answer
        (caption,) = captioner.caption(photos[0])
        assert (caption.text, caption.logprob, len(caption.words)) == ("A dog.", -1.0, 2)
    many = json.loads(GOOD)["choices"] * 10_000
    server.answer = lambda number: (200, JSON, json.dumps({"choices": many}).encode())
    assert [caption.text for caption in captioner.caption(photos[0])] == ["A dog."]


def test_numbers_that_are_no_log_probabilities_make_no_confidence(server, photos, capsys):
    logprobs = {"content": [{"token": "A dog.", "logprob": "?"}]}
    for number in ("2000", "NaN", "Infinity", "-Infinity", "true", '"-1"', "null", "1e999", "0.01"):
        body = answer_of("A dog.", logprobs=logprobs)[2].replace(b'"?"', number.encode())
        server.answer = lambda number, body=body: (200, JSON, body)
        (caption,) = Captioner.from_pretrained(server.name).caption(photos[0])
        assert (caption.text, caption.confidence, caption.logprob) == ("A dog.", None, None), number
        assert "tells no usable log-probabilities, so captions of m have no confidence." in capsys.readouterr().err


def test_an_interrupt_does_not_wait_for_a_server(server, photos):
    captioner = Captioner.from_pretrained(server.name)
    server.answer = lambda number: (200, "drops", b"")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        captioner.caption(photos[:3])
    assert time.monotonic() - started < 30  # at once; an answer may take minutes


REFUSED = {
    "openai:http://[::1/v1": '"http://[::1/v1" is no URL; name a server as ',
    "openai:http://[v1.x]/v1#m": '"http://[v1.x]/v1" is no URL; name a server as ',
    "openai:http://ä..b/v1#m": '"http://ä..b/v1" is no URL; name a server as ',
    "openai:http://127.0.0.1:x/v1#m": '"http://127.0.0.1:x/v1" is no URL; name a server as ',
    "openai:http://127.0.0.1:99999/v1#m": '"http://127.0.0.1:99999/v1" is no URL; name a server as ',
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


def test_models_without_a_name_are_refused_and_a_key_is_one_line(server, photos, capsys, monkeypatch):
    for models in ('[{"id": null}]', "[null, 7]", "[" * 100_000):
        server.models = f'{{"data": {models}}}'
        status, _, err = run(capsys, "caption", server.name, photos[0])
        assert status == 2
        assert "does not answer as a server of models does (its answer is cut off, or not of this kind)" in err
    server.models = '{"data": [{"id": "m"}]}'
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    assert run(capsys, "caption", server.name, photos[0])[0] == 0
    for key in (f"{KEY}\nx", "schlüssel"):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        status, _, err = run(capsys, "caption", server.name, photos[0])
        assert status == 2 and err.startswith("showtell: OPENAI_API_KEY holds a space, a line end or a letter that no")
