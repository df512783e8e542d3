"""Captions in the shape of OpenAI's chat completions."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.decoding import DecodingConfig
from showtell.serving.chat import ChatRequest, text_and_photo
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


PHOTO = photo_bytes((61, 47), "JPEG")  # its base64 has +, / and padding
BASE64 = base64.b64encode(PHOTO).decode()
FORMS = {  # of a photo in the messages, as clients send it
    "text": {"type": "image_url", "image_url": URL},
    "responses": {"type": "input_image", "image_url": URL, "detail": None},
    "object": {"type": "input_image", "image_url": {"url": URL}},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_photo_is_taken_in_each_form(client, engine, form):
    assert ask(client, FORMS[form]).status_code == 200
    assert engine.questions[0].photo == photo_bytes()
    broken = json.loads(json.dumps(FORMS[form]).replace(URL.partition(",")[2], "http://a/b"))
    assert ask(client, broken).status_code == 422


@given(
    start=st.sampled_from(["data:image/jpeg;base64,", "data:;base64,", "data:application/octet-stream;base64,"])
    | st.sampled_from(
        ["data:image/jpeg;name=a.jpg;charset=utf-8;base64,", " DATA:image/JPEG; Base64 ,", "data:base64,"]
    ),
    is_url_safe=st.booleans(),
    is_padded=st.booleans(),
    is_quoted=st.booleans(),
    spaces=st.lists(st.tuples(st.integers(0, len(BASE64)), st.sampled_from(" \t\r\n\f")), max_size=5),
)
def test_base64_is_read_as_browsers_read_it(start, is_url_safe, is_padded, is_quoted, spaces):
    text = BASE64.translate(str.maketrans("+/", "-_")) if is_url_safe else BASE64
    text = text if is_padded else text.rstrip("=")
    for position, space in spaces:
        text = text[:position] + space + text[position:]
    part = {"type": "image_url", "image_url": start + (quote(text) if is_quoted else text)}
    asked = ChatRequest.model_validate({"messages": [{"role": "user", "content": [part]}]})
    assert text_and_photo(asked.messages) == ("", PHOTO)


NULLS = dict.fromkeys(
    ["n", "model", "max_tokens", "temperature", "top_p", "seed", "logprobs", "stream", "stop", "user"]
)
OTHERS = {"stop": ["."], "top_k": 5, "response_format": {"type": "text"}, "metadata": {"a": "b"}, "store": True}


def test_nothing_and_other_fields_change_no_caption(client, engine):
    for given_fields in ({}, NULLS, OTHERS):
        assert ask(client, IMAGE, **given_fields).status_code == 200
    assert len({question.settings for question in engine.questions}) == 1


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
