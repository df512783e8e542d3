"""Hostile photos, names, addresses and words, against the routes over a real captioner's parts."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import threading
import zipfile
import zlib

import httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from showtell.serving.app import create_app
from showtell.serving.settings import ServeSettings
from tests.fuzzing import mutated
from tests.serving.fakes import FakeEngine, photo_bytes
from tests.serving.servers import running_server

PNG = {"Content-Type": "image/png"}
JSON_PATHS = ("captions", "explanations", "logprobs?texts=a")


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture
def client(engine):
    with TestClient(create_app(engine, ServeSettings()), base_url="http://127.0.0.1") as client:
        yield client


def post(client, photo: bytes, **params):
    return client.post("/v1/captions", content=photo, headers=PNG, params=params)


def blank_png(width: int, height: int) -> bytes:
    """A PNG of one bit a pixel, all of them black, at a thousandth of its size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(min((width // 8 + 1) * height, 1_000_000)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


LARGE_SCREEN = b"GIF89a\xff\xff\xff\xff\x00\x00\x00,\x00\x00\x00\x00\xff\xff\xff\xff\x00\x02\x00;"
BOMBS = {
    "wide and high": (blank_png(60_000, 60_000), "has more pixels than are safe to open (110,000,000); save it"),
    "a billion rows": (blank_png(1, 100_000_000), "is 1 x 100,000,000 pixels, so thin that"),
    "as wide as can be": (blank_png(2**31 - 1, 2**31 - 1), "has more pixels than are safe to open"),
    "a GIF of a large screen": (LARGE_SCREEN, "has more pixels than are safe to open"),
    "half an image": (photo_bytes((300, 300), "JPEG")[:700], "is damaged: it cannot be decoded"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is a PostScript document, not an image"),
    "SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>', "is an SVG drawing"),
    "a page": (b"<!doctype html><script>alert(1)</script>", "is not an image: it holds a web page."),
    "an archive": (b"PK\x03\x04" + bytes(100), "is a ZIP archive, not an image; unpack it."),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_by_its_header(client, name):
    photo, sentence = BOMBS[name]
    answer = post(client, photo)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(f"photo {sentence}")
    assert post(client, photo_bytes()).status_code == 200


def polyglots() -> dict[str, bytes]:
    """Files that are an image and something else."""
    archive = io.BytesIO(photo_bytes(kind="JPEG"))
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("../../evil.sh", "echo")
    image = Image.new("RGB", (20, 20), "red")
    exif = image.getexif()
    exif[0x010E] = "<script>alert(1)</script>"
    described = io.BytesIO()
    image.save(described, "JPEG", exif=exif, comment=b"<script>alert(2)</script>")
    return {"archive": archive.getvalue(), "page": described.getvalue() + b"<html><script>alert(3)</script>"}


@pytest.mark.parametrize("name", ["archive", "page"])
def test_of_a_polyglot_only_the_pixels_are_used(client, name):
    photo = polyglots()[name]
    for path in ("/v1/captions", "/v1/explanations", "/page/explanation"):
        answer = client.post(path, content=photo, headers=PNG)
        assert answer.status_code == 200
        assert "alert" not in answer.text and "evil" not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"


NAMES = {
    "path": "../../../../etc/passwd",
    "Windows": "C:\\Windows\\win.ini",
    "null": "a\x00.png",
    "ANSI": "\x1b]0;owned\x07\x1b[31mred.png",
    "HTML": '<img src=x onerror="alert(1)">.png',
    "lines": "a.png\r\nSet-Cookie: x=1",
    "right to left": "\u202egnp.exe",
    "long": "a" * 60_000,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_text_to_show_and_nothing_else(client, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shown = NAMES[name]
    in_json = {"image": "data:image/png;base64," + base64.b64encode(photo_bytes()).decode(), "name": shown}
    answers = [client.post("/v1/captions", json=in_json), client.post("/page/explanation", json=in_json)]
    if name != "long":  # of a form's headers
        quoted = shown.replace('"', "%22").replace("\r\n", "%0D%0A").replace("\x00", "")
        part = f'--x\r\nContent-Disposition: form-data; name="image"; filename="{quoted}"\r\n\r\n'.encode()
        body = part + photo_bytes() + b"\r\n--x--\r\n"
        form = {"Content-Type": "multipart/form-data; boundary=x"}
        answers.append(client.post("/v1/captions", content=body, headers=form))
    for answer in answers:
        assert answer.status_code == 200, answer.text
        assert not any(not char.isprintable() for char in answer.text.replace("\n", ""))
        assert "set-cookie" not in answer.headers
        assert len(answer.text) < 100_000
        if answer.headers["content-type"].startswith("text/html"):
            assert "<img src=x" not in answer.text
    assert list(tmp_path.iterdir()) == []


TARGETS = [
    "http://127.0.0.1:{port}/secret",
    "https://127.0.0.1:{port}/secret",
    "HTTP://127.0.0.1:{port}/secret",
    "//127.0.0.1:{port}/secret",
    "ftp://127.0.0.1:{port}/secret",
    "file:///etc/passwd",
    "/etc/passwd",
    "data:text/html;base64,PHNjcmlwdD4=",
    "data:image/png,http://127.0.0.1:{port}/",
    "data:image/svg+xml;utf8,<svg/>",
    "blob:http://127.0.0.1:{port}/x",
    "gopher://127.0.0.1:{port}/_x",
]


def test_nothing_is_ever_fetched(client):
    asked = threading.Event()

    class Trap(FakeEngine):
        async def ask(self, question):
            asked.set()
            return await super().ask(question)

    with running_server(Trap()) as trap:
        for target in TARGETS:
            url = target.format(port=trap.port)
            part = {"type": "image_url", "image_url": {"url": url}}
            chat = {"messages": [{"role": "user", "content": [part]}]}
            answers = [client.post(f"/v1/{path}", json={"image": url}) for path in JSON_PATHS]
            for answer in [*answers, client.post("/v1/chat/completions", json=chat)]:
                assert answer.status_code == 422
                assert "send the photo itself" in answer.json()["detail"]
                assert "root:" not in answer.text
        assert trap.server.server_state.total_requests == 0
        assert httpx.get(f"{trap.url}/healthz").status_code == 200
    assert not asked.is_set()


def test_words_of_a_captioner_are_escaped_wherever_they_are_shown(client, engine):
    engine.words = ("<script>alert(1)</script>", "\x1b[31m", '"><img src=x onerror=alert(1)>')
    card = client.post("/page/explanation", content=photo_bytes(), headers=PNG)
    assert "<script>" not in card.text and "<img src=x" not in card.text
    answer = post(client, photo_bytes())
    assert answer.headers["content-type"] == "application/json"
    assert "\x1b" not in answer.text
    assert answer.json()["captions"][0]["words"][1]["word"] == "\x1b[31m"


def test_a_sentence_about_hostile_input_is_one_line_for_any_terminal(client):
    answer = post(client, photo_bytes(), captioner="\x1b[31m\nred\u202e" + "a" * 5000)
    assert answer.status_code == 404
    assert answer.json()["detail"].isprintable()
    assert len(answer.json()["detail"]) < 500


@pytest.mark.parametrize(
    "path", ["/..%2f..%2fetc/passwd", "/v1/../../etc/passwd", "/%00", "/v1/models/..%2f..%2fx", "/page/%2e%2e/x"]
)
def test_a_path_is_never_one_of_files(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].isprintable()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_a_body_the_answer_is_a_caption_or_a_sentence(client, seed):
    choose = random.Random(seed)
    url = "data:image/png;base64," + base64.b64encode(photo_bytes((2, 2))).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    disposition = b'--x\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
    form = disposition % (b"image", b'; filename="a.png"', photo_bytes((2, 2))) + disposition % (
        b"num_beams",
        b"",
        b"3",
    )
    bodies = [
        ("/v1/captions", "image/png", photo_bytes((2, 2))),
        ("/v1/captions", "multipart/form-data; boundary=x", form + b"--x--\r\n"),
        ("/v1/captions", "application/json", json.dumps({"image": url, "num_beams": 2, "bad_words": ["a"]}).encode()),
        ("/v1/logprobs", "application/json", json.dumps({"image": url, "texts": ["a dog", "a cat"]}).encode()),
        (
            "/v1/chat/completions",
            "application/json",
            json.dumps({"messages": [{"role": "user", "content": [part]}]}).encode(),
        ),
    ]
    statuses = set()
    for _ in range(60):
        path, kind, body = choose.choice(bodies)
        answer = client.post(path, content=mutated(body, choose), headers={"Content-Type": kind})
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"].isprintable() and answer.json()["detail"].endswith(".")
    assert {200, 422} <= statuses <= {200, 400, 404, 422}
