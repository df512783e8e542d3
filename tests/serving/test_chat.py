"""Captions in the shape of OpenAI's chat completions."""

from __future__ import annotations

import base64
import json

import pytest

from showtell.decoding import DecodingConfig
from tests.serving.fakes import FakeEngine, Served, photo_bytes

URL = "data:image/png;base64," + base64.b64encode(photo_bytes()).decode()
IMAGE = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}


@pytest.fixture
def engine():
    asked = Served.abilities
    chat = Served(
        decoding=DecodingConfig(prompt="What is it?", max_length=100),
        abilities=type(asked)(asked.searches, (*asked.settings, "prompt")),
    )
    return FakeEngine(toy=Served(), chat=chat)


def ask(client, *parts, **more):
    messages = [{"role": "system", "content": "You caption photos."}, {"role": "user", "content": list(parts)}]
    return client.post("/v1/chat/completions", json={"messages": messages, **more})


def test_a_photo_gets_its_caption(client, engine):
    answer = ask(client, {"type": "text", "text": "Describe it."}, IMAGE, model="toy", user="me").json()
    (choice,) = answer["choices"]
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "toy"
    assert choice["message"] == {"role": "assistant", "content": "a red circle", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 0, "completion_tokens": 3, "total_tokens": 3}
    assert engine.questions[0].settings == DecodingConfig()  # a captioner that is asked nothing


def test_a_captioner_that_is_asked_something_is_asked_the_text(client, engine):
    ask(client, {"type": "text", "text": "What colour?"}, IMAGE, model="chat", max_tokens=30)
    settings = engine.questions[0].settings
    assert settings.prompt == "You caption photos.\nWhat colour?"
    assert settings.max_length == 30


def test_settings_of_openai_are_those_of_decoding(client, engine):
    ask(client, IMAGE, max_tokens=500, temperature=0)
    ask(client, IMAGE, max_completion_tokens=5, temperature=0.5, top_p=0.9, seed=3, n=2)
    ask(client, IMAGE, n=3)
    plain, sampled, several = (question.settings for question in engine.questions)
    assert plain == DecodingConfig()  # max_tokens is a bound, not a wish
    assert (sampled.search, sampled.temperature, sampled.top_p, sampled.seed) == ("sample", 0.5, 0.9, 3)
    assert (sampled.max_length, sampled.num_return_sequences) == (5, 2)
    assert (several.kind, several.num_beams, several.num_return_sequences) == ("beam", 3, 3)


def test_a_stream_has_the_words_and_an_end(client):
    response = ask(client, IMAGE, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert last == "[DONE]"
    (chunk,) = map(json.loads, events)
    assert chunk["object"] == "chat.completion.chunk"
    (choice,) = chunk["choices"]
    assert (choice["delta"]["role"], choice["delta"]["content"]) == ("assistant", "a red circle")
    assert choice["finish_reason"] == "stop"
    assert chunk["usage"]["completion_tokens"] == 3


def test_the_captioners_are_models(client):
    models = client.get("/v1/models").json()
    assert [one["id"] for one in models["data"]] == ["toy", "chat"]
    assert client.get("/v1/models/chat").json() == models["data"][1]
    assert client.get("/v1/models/none").status_code == 404


def test_a_mistake_is_answered_where_openai_clients_look(client):
    other = {"type": "image_url", "image_url": {"url": "http://169.254.169.254/latest/meta-data"}}
    long = {"type": "text", "text": "a" * 65_537}
    for status, parts, more, sentence in (
        (422, ({"type": "text", "text": "hi"},), {}, "The messages have no photo; send exactly one, as"),
        (422, (IMAGE, IMAGE), {}, "The messages have 2 photos; send exactly one, as"),
        (422, (other,), {}, 'image_url is "http://169.254.169.254/latest/meta-data", and this server fetches'),
        (404, (IMAGE,), {"model": "gpt-4o"}, 'There is no captioner "gpt-4o"; Known: chat, toy.'),
        (422, (IMAGE,), {"tools": [{}]}, "A captioner answers with captions alone; leave tools out, or"),
        (422, (IMAGE,), {"top_logprobs": 2}, "A captioner answers with captions alone; leave top_logp"),
        (422, (IMAGE,), {"response_format": {"type": "json_object"}}, "A captioner answers in plain text"),
        (422, ({"type": "input_audio"},), {}, "messages.1.content.0: Input tag 'input_audio' found using 'type' does"),
        (422, (IMAGE,), {"n": 1000}, "n: Input should be less than or equal to 100."),
        (422, (long, IMAGE), {}, "messages.1.content.0.text.text: String should have at most 65536 characters."),
    ):
        response = ask(client, *parts, **more)
        assert response.status_code == status
        assert response.json()["detail"].startswith(sentence)
        assert response.json()["error"]["message"] == response.json()["detail"]
        assert response.json()["error"]["type"] == "invalid_request_error"
    assert client.post("/v1/chat/completions", json={"messages": []}).json()["detail"].startswith("messages: List")
    assert client.post("/v1/chat/completions", content=b"{").status_code == 422
