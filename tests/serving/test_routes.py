"""The API over an engine that answers at once: forms of photos, settings, and the sentence of every mistake."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from showtell.errors import ImageError, UsageError
from showtell.serving.answers import CaptionersAnswer, CaptionsAnswer, ExplanationAnswer, LogprobsAnswer
from showtell.serving.app import create_app
from showtell.serving.engine import ClosingError, QueueFullError, TooLateError
from showtell.serving.settings import ServeSettings
from tests.serving.fakes import FakeEngine, photo_bytes, served

PNG = {"Content-Type": "image/png"}
PHOTO = photo_bytes()
DATA_URL = "data:image/png;base64," + base64.b64encode(PHOTO).decode()
LOCAL = "http://127.0.0.1:7860"


@pytest.fixture
def engine():
    return FakeEngine(served("toy", is_calibrated=True), served("other"))


@pytest.fixture
def client(engine):
    with TestClient(create_app(engine, ServeSettings(max_body=100_000)), base_url=LOCAL) as client:
        yield client


def post(client, path="/v1/captions", content=PHOTO, headers=PNG, **more):
    return client.post(path, content=content, headers=headers, **more)


def detail(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"] == "about:blank"
    return problem["detail"]


# --- photos and settings in every form ---


def test_the_same_photo_and_settings_in_every_form_are_the_same_question(client, engine):
    fields = {"num_beams": 3, "bad_words": ["a dog", "cat"], "no_unknown": True, "length_penalty": 0.5}
    query = {"num_beams": "3", "bad_words": ["a dog", "cat"], "no_unknown": "true", "length_penalty": "0.5"}
    in_address = post(client, params=query)
    in_form = client.post("/v1/captions", files={"image": ("photo", PHOTO)}, data=query)
    in_json = client.post("/v1/captions", json={"image": DATA_URL, **fields})
    assert in_address.status_code == 200
    assert in_address.json() == in_form.json() == in_json.json()
    assert engine.questions[0] == engine.questions[1] == engine.questions[2]
    settings = engine.questions[0].settings
    assert (settings.num_beams, settings.bad_words, settings.length_penalty) == (3, ("a dog", "cat"), 0.5)
    assert engine.questions[0].photo == PHOTO


def test_captions_are_what_the_command_line_writes(client):
    answer = post(client, params={"num_beams": 2, "num_return_sequences": 2, "name": "beach.jpg"}).json()
    CaptionsAnswer.model_validate(answer)
    assert answer["image"] == "beach.jpg"
    assert [caption["text"] for caption in answer["captions"]] == ["a red circle"] * 2
    assert answer["captions"][0]["logprob"] == -1.875


def test_fields_of_the_body_win_over_those_of_the_address(client, engine):
    client.post(
        "/v1/captions?num_beams=2&captioner=toy", json={"image": DATA_URL, "num_beams": 4, "captioner": "other"}
    )
    assert engine.questions[0].settings.num_beams == 4
    assert engine.questions[0].captioner == "other"


def test_a_confidence_is_calibrated_only_where_that_is_asked_for(client):
    plain, calibrated = (post(client, params={"calibrated": value}).json()["captions"][0] for value in (False, True))
    assert not plain["calibrated"]
    assert calibrated["calibrated"]
    assert calibrated["confidence"] == 0.75
    assert plain["confidence"] == pytest.approx(0.6257840096)  # exp(-1.875 / 4)
    assert detail(post(client, params={"calibrated": True, "captioner": "other"}), 422) == (
        "other has no calibration; run showtell calibrate, or leave calibrated out."
    )


def test_log_probabilities_of_texts(client, engine):
    answer = post(client, "/v1/logprobs", params={"texts": ["a dog", "a cat"]}).json()
    LogprobsAnswer.model_validate(answer)
    assert [text["text"] for text in answer["texts"]] == ["a dog", "a cat"]
    assert engine.questions[0].texts == ("a dog", "a cat")


def test_an_explanation_has_the_size_of_the_photo(client, engine):
    answer = post(client, "/v1/explanations", params={"occlusion": "mean", "num_beams": 2}).json()
    ExplanationAnswer.model_validate(answer)
    assert answer["size"] == [48, 32]
    assert [model["model"] for model in answer["models"]] == ["toy"]
    assert (engine.questions[0].occlusion, engine.questions[0].settings.num_beams) == ("mean", 2)


def test_the_captioners_are_listed_without_paths_of_the_machine(client):
    answer = client.get("/v1/captioners").json()
    CaptionersAnswer.model_validate(answer)
    assert [one["name"] for one in answer["captioners"]] == ["toy", "other"]
    assert answer["captioners"][0]["about"]["folder"] is None
    assert "num_beams" in answer["captioners"][0]["abilities"]["settings"]


def test_the_origin_of_a_captioner_is_listed_without_paths_of_the_machine():
    data = {"name": "scenes", "file": "/home/anna/scenes.csv", "kept": {"/home/anna/a": 1, "share": "a/b"}}
    members = [{"start_from": "C:\\models\\a", "epochs": 3}, "/srv/models/b", "and/or"]
    about = replace(served().about, origin={"data": data, "members": members, "start_from": "/srv/models/a"})
    engine = FakeEngine(served(about=about))
    with TestClient(create_app(engine, ServeSettings()), base_url=LOCAL) as client:
        (listed,) = client.get("/v1/captioners").json()["captioners"]
    assert listed["about"]["origin"] == {
        "data": {"name": "scenes", "kept": {"share": "a/b"}},
        "members": [{"epochs": 3}, "and/or"],
    }


def test_the_engine_lives_as_long_as_the_app(engine):
    assert engine.state == "new"
    with TestClient(create_app(engine, ServeSettings()), base_url=LOCAL) as client:
        assert client.get("/readyz").json() == {"ready": True}
        engine.state = "starting"
        assert detail(client.get("/readyz"), 503).startswith("The captioners are not ready")
        assert client.get("/healthz").json() == {"alive": True}
    assert engine.state == "closed"


def test_a_captioner_that_has_no_prefix_refuses_it(client, engine):
    post(client, params={"prefix": "a red"})
    assert engine.questions[0].settings.prefix == "a red"
    toy = served()
    few = type(toy.abilities)(toy.abilities.searches, ("num_beams", "max_length"))
    with pytest.raises(UsageError, match="toy model cannot honour prefix=a red; it knows num_beams, max_length"):
        served(abilities=few).settings(prefix="a red")


# --- mistakes ---

MISTAKES = {
    "no photo": (422, {"content": b""}, "photo is empty; it should hold an image."),
    "no image": (422, {"content": b"hello"}, "photo is not an image: it holds text."),
    "no image of a name": (
        422,
        {"content": b"hello", "params": {"name": "a.png"}},
        "a.png is not an image: it holds text.",
    ),
    "an unknown setting": (
        422,
        {"params": {"num_beam": 2}},
        'There is no decoding setting "num_beam"; did you mean "num_beams"?',
    ),
    "out of range": (422, {"params": {"num_beams": 0}}, "num_beams: Input should be greater than or equal to 1."),
    "no number": (422, {"params": {"num_beams": "x"}}, "num_beams: Input should be a valid integer"),
    "a number of more than 64 bits": (
        422,
        {"params": {"seed": "9" * 40}},
        "seed: whole numbers have at most 64 bits here.",
    ),
    "not finite": (
        422,
        {"params": {"search": "sample", "temperature": "1e999"}},
        "temperature: Input should be a finite number.",
    ),
    "given twice": (422, {"params": {"num_beams": [1, 2]}}, "num_beams is given 2 times, and has one value."),
    "without effect": (422, {"params": {"top_k": 5}}, "top_k=5 has no effect with search=greedy; use search=sample."),
    "not honoured": (422, {"params": {"prompt": "hi"}}, "toy model cannot honour prompt=hi; it knows search,"),
    "an unknown captioner": (
        404,
        {"params": {"captioner": "toi"}},
        'There is no captioner "toi"; did you mean "toy"? Known: other, toy.',
    ),
    "no type": (415, {"headers": {}}, "Content-Type is missing; send the photo as image/jpeg"),
    "an unknown type": (
        415,
        {"headers": {"Content-Type": "text/html"}},
        'Content-Type is "text/html"; send the photo as',
    ),
    "too large": (
        413,
        {"content": bytes(100_001)},
        "A body may have 100,000 bytes, and this one has 100,001 bytes; send a smaller one.",
    ),
    "not boolean": (422, {"params": {"attention": "maybe"}}, "attention: Input should be a valid boolean"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_one_sentence(client, mistake):
    status, request, sentence = MISTAKES[mistake]
    assert detail(post(client, **request), status).startswith(sentence)


JSON_MISTAKES = {
    "no JSON": (400, b"{", "The body is no JSON in UTF-8: Expecting property name"),
    "no UTF-8": (400, b'{"image": "\xff"}', "The body is no JSON in UTF-8:"),
    "an encoded surrogate": (400, b'{"image": "\xed\xa0\xbd"}', "The body is no JSON in UTF-8:"),
    "UTF-16": (400, '{"image": ""}'.encode("utf-16"), "The body is no JSON in UTF-8:"),
    "a lone surrogate": (400, b'{"image": "\\ud800"}', "The body is no JSON in UTF-8:"),
    "no object": (400, b"[1, 2]", "The body should be a JSON object, not [1, 2]."),
    "not finite": (400, b'{"length_penalty": NaN}', "The body is no JSON in UTF-8: NaN is no number of JSON."),
    "many values": (
        400,
        b"[" + b"," * 60_000 + b"]",
        "The JSON has more than 50,000 values, which no question needs.",
    ),
    "nested deep": (400, b"[" * 49_000, "The body is no JSON in UTF-8: it is nested too deep."),
    "no image": (422, b"{}", 'The JSON has no "image"; put the photo there as "data:image/jpeg;base64,...".'),
    "a number": (422, b'{"image": 5}', 'image is "5", and that is no photo; send the photo itself'),
    "broken base64": (
        422,
        b'{"image": "data:image/png;base64,AAA"}',
        "image is a data: URL whose base64 is broken: incorrect padding.",
    ),
    "spaces in base64": (
        422,
        b'{"image": "data:image/png;base64,AA AA"}',
        "image is a data: URL whose base64 is broken:",
    ),
    "a nested setting": (
        422,
        json.dumps({"image": DATA_URL, "num_beams": {"a": 1}}).encode(),
        "num_beams: Input should be a valid integer.",
    ),
}


@pytest.mark.parametrize("mistake", JSON_MISTAKES)
def test_a_mistake_in_json_is_answered_with_one_sentence(client, mistake):
    status, content, sentence = JSON_MISTAKES[mistake]
    response = post(client, content=content, headers={"Content-Type": "application/json"})
    assert detail(response, status).startswith(sentence)


FORM = {"Content-Type": "multipart/form-data; boundary=x"}
FORM_MISTAKES = {
    "no boundary": (
        400,
        {"Content-Type": "multipart/form-data"},
        b"",
        "The form cannot be read: Missing boundary in multipart.",
    ),
    "no end": (
        400,
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\nabc',
        "The form has no file",
    ),
    "junk": (400, FORM, b"\x00\xff" * 500, "The form cannot be read: Invalid multipart data."),
    "no name": (
        400,
        FORM,
        b"--x\r\nContent-Disposition: form-data\r\n\r\nabc\r\n--x--",
        "The form cannot be read: The Content-Disposition header",
    ),
    "no file": (
        400,
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\nabc\r\n--x--',
        "The form has no file; send the photo as a file",
    ),
    "another file": (
        400,
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="b"; filename="a"\r\n\r\nabc\r\n--x--',
        'The form has a file "b"; send the photo',
    ),
    "many fields": (
        400,
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="b"\r\n\r\nabc\r\n' * 101,
        "The form cannot be read: Too many fields.",
    ),
    "a long field": (
        400,
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="b"\r\n\r\n' + b"a" * 70_000,
        "The form cannot be read: Part exceeded",
    ),
}


@pytest.mark.parametrize("mistake", FORM_MISTAKES)
def test_a_mistake_in_a_form_is_answered_with_one_sentence(client, mistake):
    status, headers, content, sentence = FORM_MISTAKES[mistake]
    assert detail(post(client, content=content, headers=headers), status).startswith(sentence)


@pytest.mark.parametrize("charset", ["undefined", "punycode", "utf-7", "unicode_escape", "latin-1", "none", "a\x00"])
def test_a_form_in_another_charset_is_refused(client, charset):
    headers = {"Content-Type": f'multipart/form-data; boundary=x; charset="{charset}"'}
    content = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a+2AA-\\ud800"\r\n\r\na\r\n--x--'
    shown = charset.replace("\x00", "\\x00")
    assert detail(post(client, content=content, headers=headers), 415) == (
        f'The form has charset "{shown}"; send its texts in UTF-8.'
    )


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "Utf_8"])
def test_a_form_in_utf_8_is_read(client, charset):
    headers = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
    begin = '--x\r\nContent-Disposition: form-data; name="image"; filename="Äpfel.png"\r\n\r\n'
    answer = post(client, content=begin.encode() + PHOTO + b"\r\n--x--\r\n", headers=headers)
    assert (answer.status_code, answer.json()["image"]) == (200, "Äpfel.png")


@pytest.mark.parametrize("path", ["captions", "explanations", "logprobs"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, "a" * 65_537) for name in ("name", "captioner", "search", "occlusion", "unknown")),
        ("texts", ["a", "a" * 65_537]),
        ("image", ["a" * 65_537]),
        ("x", {"image": "a" * 65_537}),
    ],
)
def test_a_text_of_json_that_is_too_long_is_refused(client, path, field, value):
    answer = client.post(f"/v1/{path}", json={"image": DATA_URL, field: value})
    name = "image" if field == "x" else field
    assert detail(answer, 422) == f"{name} has 65,537 characters, and only a photo may have more than 65,536."


def test_a_key_of_json_that_is_too_long_is_refused(client):
    answer = client.post("/v1/captions", json={"image": DATA_URL, "a" * 65_537: 1})
    assert detail(answer, 422) == "a key has 65,537 characters, and only a photo may have more than 65,536."


def test_a_photo_in_json_may_be_longer_than_other_texts(client):
    large = "data:image/bmp;base64," + base64.b64encode(photo_bytes((140, 130), "BMP")).decode()
    assert len(large) > 65_536
    assert client.post("/v1/captions", json={"image": large}).status_code == 200


def test_texts_do_not_depend_on_the_search(client):
    assert detail(post(client, "/v1/logprobs", params={"texts": "a", "num_beams": 2}), 422) == (
        'The log-probabilities of given texts do not depend on "num_beams"; the conditions are stage and prompt.'
    )


def test_a_path_or_method_that_is_none_is_answered_with_one_sentence(client):
    assert detail(client.get("/v2/captions"), 404) == "There is nothing at /v2/captions; /docs lists what there is."
    assert detail(client.get("/v1/captions"), 405) == "GET is not allowed at /v1/captions; use POST."


ERRORS = {
    "queue": (QueueFullError("Too many photos wait.", 2.5), 429),
    "late": (TooLateError("It took too long."), 504),
    "closing": (ClosingError("The server is ending."), 503),
    "image": (ImageError("The image in memory is damaged."), 422),
    "defect": (ZeroDivisionError("secret"), 500),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_the_engine_has_its_status(name):
    error, status = ERRORS[name]
    app = create_app(FakeEngine(error=error), ServeSettings())
    with TestClient(app, base_url=LOCAL, raise_server_exceptions=False) as client:
        response = post(client)
    sentence = detail(response, status)
    assert response.headers.get("retry-after") == ("3" if name == "queue" else None)
    expected = {"image": "photo is damaged.", "defect": "Something failed inside the server; its log has the details."}
    assert sentence == expected.get(name, str(error))


# --- the description ---


def test_the_description_has_each_route_with_its_settings_and_errors(client):
    content = client.get("/openapi.json").json()
    operation = content["paths"]["/v1/captions"]["post"]
    parameters = {one["name"]: one for one in operation["parameters"]}
    assert parameters["num_beams"]["schema"] == {"maximum": 1000, "minimum": 1, "type": "integer"}
    assert parameters["num_beams"]["description"] == "Beam width; 1 is greedy search."
    assert {"captioner", "calibrated", "attention", "bad_words"} <= parameters.keys()
    assert set(operation["requestBody"]["content"]) >= {"image/*", "multipart/form-data", "application/json"}
    assert {"200", "404", "413", "415", "422", "429", "503", "504"} <= operation["responses"].keys()
    assert "Problem" in content["components"]["schemas"]
    assert set(content["components"]["schemas"]["CaptionAnswer"]["properties"]) >= {"text", "logprob", "words"}


def test_the_description_is_a_page_that_loads_nothing(client):
    page = client.get("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert "script" not in page.headers["content-security-policy"]
    for path in client.get("/openapi.json").json()["paths"]:
        assert f"{path}</code>" in page.text
    assert "Beam width; 1 is greedy search." in page.text
    assert not re.findall(r"(?:src|href)=\"(?!#|openapi.json|data:)", page.text)


BEAMS = "Beams or samples times max_length are"
COSTLY = {
    "beams": (
        "captions",
        {"num_beams": 300},
        f"{BEAMS} 300 x 20 words, and this server takes 5,000 at a time; ask for",
    ),
    "samples": ("captions", {"search": "sample", "num_return_sequences": 300}, f"{BEAMS} 300 x 20 words"),
    "length": ("captions", {"num_beams": 10, "max_length": 1000}, f"{BEAMS} 10 x 1,000 words"),
    "forced": ("captions", {"num_beams": 100, "force_words": ["a b", "c"]}, f"{BEAMS} 400 x 20 words"),
    "phrases": ("captions", {"bad_words": ["a b"] * 101}, "bad_words and force_words have 101 phrases, and this"),
    "prefix": ("captions", {"prefix": "a " * 3000}, "A setting has a text of 6,000 characters, and this server takes"),
    "occlusion": (
        "explanations",
        {"max_length": 400, "occlusion": "mean"},
        f"{BEAMS} 1 x 400 words, times 16 for occlusion, and this server takes 5,000",
    ),
    "texts": ("logprobs", {"texts": ["a", "b" * 6000]}, "The texts have up to 6,002 words, and this server takes"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_question_that_would_hold_up_all_others_is_refused(client, name):
    path, settings, sentence = COSTLY[name]
    assert detail(client.post(f"/v1/{path}", json={"image": DATA_URL, **settings}), 422).startswith(sentence)


def test_every_operation_is_described(client):
    content = client.get("/openapi.json").json()
    for path, methods in content["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"].endswith("."), where
            assert {"401", "403", "421", "500"} <= operation["responses"].keys(), where
            assert all(one["description"] for one in operation.get("parameters", ()) if one["in"] == "query"), where
            described = [answer["description"] for answer in operation["responses"].values()]
            assert all(described), where
            names = [schema["$ref"].rpartition("/")[2] for schema in references(operation)]
            assert set(names) <= content["components"]["schemas"].keys(), where


def references(content):
    """Every {"$ref": ...} in some JSON."""
    if isinstance(content, dict):
        if "$ref" in content:
            yield content
        content = list(content.values())
    for value in content if isinstance(content, list) else ():
        yield from references(value)
