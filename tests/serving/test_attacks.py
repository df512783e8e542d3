"""Hostile photos, names, addresses and words, against the routes over a real captioner's parts."""

import random

import pytest

from tests.fuzzing import mutated
from tests.serving.conftest import PNG
from tests.serving.fakes import photo_bytes


def post(client, photo: bytes, **params):
    return client.post("/v1/captions", content=photo, headers=PNG, params=params)


HOSTILE_NAMES = [
    *("../../../../etc/passwd", "C:\\Windows\\win.ini", "a\x00.png", "\x1b]0;owned\x07\x1b[31mred.png", "a" * 30_000),
    *('<img src=x onerror="alert(1)">.png', "a.png\r\nSet-Cookie: x=1", "\u202egnp.exe"),
]


def test_a_name_is_a_text_to_show_and_nothing_else(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in HOSTILE_NAMES:
        for path in ("/v1/captions", "/page/explanation"):
            answer = client.post(path, content=photo_bytes(), params={"name": name})
            assert answer.status_code == 200, answer.text
            assert answer.text.replace("\n", "").isprintable()
            assert "set-cookie" not in answer.headers and len(answer.text) < 100_000
            if answer.headers["content-type"].startswith("text/html"):
                assert "<img src=x" not in answer.text
    assert list(tmp_path.iterdir()) == []


def test_a_sentence_about_hostile_input_is_one_line_for_any_terminal(client):
    answer = post(client, photo_bytes(), captioner="\x1b[31m\nred\u202e" + "a" * 5000)
    assert answer.status_code == 404 and len(answer.json()["detail"]) < 500
    assert answer.json()["detail"].isprintable()
    for path in ("/..%2f..%2fetc/passwd", "/v1/../../etc/passwd", "/%00", "/page/%2e%2e/x"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.json()["detail"].isprintable()


@pytest.mark.parametrize("seed", range(2))
def test_whatever_happens_to_a_body_the_answer_is_a_caption_or_a_sentence(client, seed):
    choose, photo = random.Random(seed), photo_bytes((2, 2))
    statuses = set()
    for _ in range(40):
        answer = post(client, mutated(photo, choose))
        statuses.add(answer.status_code)
        if answer.status_code != 200:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["detail"].isprintable() and answer.json()["detail"].endswith(".")
    assert {200, 422} == statuses
