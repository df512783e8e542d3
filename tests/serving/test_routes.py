"""The API over an engine that answers at once: forms of photos, settings, and the sentence of every mistake."""

from dataclasses import replace
from pathlib import Path

import pytest

from showtell.errors import CheckpointError, ImageError
from showtell.serving.engine import ClosingError, QueueFullError, TooLateError
from showtell.serving.routes import EXAMPLE
from tests.serving.conftest import PNG, client_of
from tests.serving.fakes import FakeEngine, Served, photo_bytes

PHOTO = photo_bytes()


@pytest.fixture
def engine():
    return FakeEngine(toy=Served(calibration=object()), other=Served())


def post(client, path="/v1/captions", content=PHOTO, headers=PNG, **more):
    return client.post(path, content=content, headers=headers, **more)


def detail(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["type"]) == (status, "about:blank")
    return problem["detail"]


def test_the_body_is_the_photo_and_the_address_has_the_settings(client, engine):
    query = {"num_beams": "3", "bad_words": ["a dog", "cat"], "no_unknown": "true", "length_penalty": "0.5"}
    assert post(client, params=query).status_code == 200
    assert client.post("/v1/captions?captioner=other", content=PHOTO).status_code == 200
    settings = engine.questions[0].settings
    assert (settings.num_beams, settings.bad_words, settings.length_penalty) == (3, ("a dog", "cat"), 0.5)
    assert [(one.photo, one.captioner) for one in engine.questions] == [(PHOTO, "toy"), (PHOTO, "other")]


def test_answers_are_what_the_command_line_writes_and_the_description_shows(client, engine):
    answer = post(client, params={"num_beams": 2, "num_return_sequences": 2, "name": "beach.jpg"}).json()
    (shown,) = EXAMPLE["captions"]
    assert all(one.keys() == shown.keys() for one in answer["captions"])
    assert answer["image"] == "beach.jpg"
    assert [(one["text"], one["logprob"]) for one in answer["captions"]] == [("a red circle", -1.875)] * 2
    explanation = post(client, "/v1/explanations", params={"saliency": "mean", "num_beams": 2}).json()
    assert (explanation["size"], [model["model"] for model in explanation["models"]]) == ([48, 32], ["toy"])
    assert (engine.questions[-1].saliency, engine.questions[-1].settings.num_beams) == ("mean", 2)


def test_a_confidence_is_calibrated_where_the_captioner_is(client):
    calibrated, plain = (post(client, params={"captioner": name}).json()["captions"][0] for name in ("toy", "other"))
    assert (plain["calibrated"], calibrated["calibrated"], calibrated["confidence"]) == (False, True, 0.75)
    assert plain["confidence"] == pytest.approx(0.6257840096)  # exp(-1.875 / 4)


def test_the_captioners_are_listed_without_paths_of_the_machine():
    about = replace(Served.about, folder=Path("/home/anna/run"), origin={"start_from": "/srv/models/a"})
    with client_of(FakeEngine(toy=Served(about=about))) as client:
        answer = client.get("/v1/captioners")
    (listed,) = answer.json()["captioners"]
    assert listed["about"]["name"] == "toy model" and "num_beams" in listed["abilities"]["settings"]
    assert "anna" not in answer.text and "/srv" not in answer.text


def test_the_engine_lives_as_long_as_the_app(engine):
    with client_of(engine) as client:
        assert client.get("/readyz").json() == {"ready": True}
        engine.is_ready = False
        assert detail(client.get("/readyz"), 503).startswith("The captioners are not ready")
        assert client.get("/healthz").json() == {"alive": True}
    assert engine.state == "closed"


MISTAKES = [  # status, what differs from a request for captions, and the beginning of the sentence
    (422, {"content": b""}, "photo is empty; it should hold an image."),
    (422, {"content": b"hello", "params": {"name": "a.png"}}, "a.png is not an image: it holds text."),
    (422, {"params": {"num_beam": 2}}, 'There is no decoding setting "num_beam"; did you mean "num_beams"?'),
    (422, {"params": {"num_beams": "x"}}, "num_beams: Input should be a valid integer"),
    (422, {"params": {"seed": "9" * 40}}, "seed: whole numbers have at most 64 bits here."),
    (422, {"params": {"num_beams": [1, 2]}}, "num_beams is given 2 times, and has one value."),
    (422, {"params": {"top_k": 5}}, "top_k=5 has no effect with search=greedy; use search=sample."),
    (422, {"params": {"prompt": "hi"}}, "toy model cannot honour prompt=hi; it knows search,"),
    (422, {"params": {"num_beams": 300}}, "The question asks for up to 6,000 words (beams or samples times max_length"),
    (404, {"params": {"captioner": "toi"}}, 'There is no captioner "toi"; did you mean "toy"? Known: other, toy.'),
    (415, {"headers": {"Content-Type": "multipart/form-data"}}, "A form is not read; send the photo itself"),
    (413, {"content": bytes(2_000_001)}, "A body may have 2,000,000 bytes, and this one has 2,000,001 bytes; send a"),
]


def test_a_mistake_is_answered_with_one_sentence(client):
    for status, request, sentence in MISTAKES:
        assert detail(post(client, **request), status).startswith(sentence)
    assert detail(client.get("/v2/captions"), 404) == "There is nothing at /v2/captions; /docs lists what there is."
    assert detail(client.get("/v1/captions"), 405) == "This method is not allowed at /v1/captions; use POST."


def test_an_error_of_the_engine_has_its_status():
    for error, status, sentence in (
        (QueueFullError("Too many photos wait."), 429, "Too many photos wait."),
        (TooLateError("It took too long."), 504, "It took too long."),
        (ClosingError("The server is ending."), 503, "The server is ending."),
        (ImageError("The image in memory is damaged."), 422, "photo is damaged."),
        (CheckpointError("The captioner gives nan."), 422, "The captioner gives nan."),
        (ZeroDivisionError("secret"), 500, "Something failed inside the server; its log has the details."),
    ):
        with client_of(FakeEngine(error=error), raises=False) as client:
            response = post(client)
        assert detail(response, status) == sentence
        assert response.headers.get("retry-after") == ("1" if status == 429 else None)


def test_the_description_has_each_route_with_its_settings_and_errors(client):
    content = client.get("/openapi.json").json()
    operation = content["paths"]["/v1/captions"]["post"]
    assert set(operation["requestBody"]["content"]) == {"image/*"}
    fields = {one["name"]: one["schema"] for one in operation["parameters"]}
    beams = {"maximum": 1000, "minimum": 1, "type": "integer", "description": "Beam width; 1 is greedy search."}
    assert fields["num_beams"] == beams
    assert {"captioner", "bad_words"} <= fields.keys()
    assert {"200", "404", "413", "415", "422", "429", "503", "504"} <= operation["responses"].keys()
    assert operation["responses"]["200"]["content"]["application/json"]["example"] == EXAMPLE
    for path, methods in content["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"].endswith("."), where
            assert {"401", "403", "421", "500"} <= operation["responses"].keys(), where
            assert all(one["description"] for one in operation.get("parameters", ()) if one["in"] == "query"), where
    assert "swagger-ui" in client.get("/docs").text
