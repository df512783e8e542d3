"""Corrections over HTTP: each route, each mistake, and a server that is opened again."""

from __future__ import annotations

import base64
import io
import random
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from showtell.datasets import open_dataset
from showtell.errors import StorageError
from showtell.serving.app import create_app
from showtell.serving.settings import ServeSettings
from tests.serving.corrector import make_photo
from tests.serving.fakes import FakeEngine
from tests.serving.test_corrections import HOSTILE
from tests.serving.test_routes import LOCAL, PNG, detail

ROWS = "/v1/corrections"


def open_client(folder) -> TestClient:
    return TestClient(create_app(FakeEngine(), ServeSettings(corrections=folder, max_body=100_000)), base_url=LOCAL)


@pytest.fixture
def client(tmp_path):
    with open_client(tmp_path / "kept") as client:
        yield client


def put(client, number, **fields):
    id, content = make_photo(number)
    return client.put(f"{ROWS}/photos/{id}", content=content, headers=PNG, params=fields)


def test_from_a_photo_to_a_correction(client, tmp_path):
    id, _ = make_photo(1)
    new = put(client, 1, name="dog.png", captioner="scenes", caption="a dog runs", confidence=0.5)
    assert new.status_code == 201
    row = new.json()
    times = {"created": row["created"], "changed": row["created"]}
    assert row == {
        "id": id, "name": "dog.png", "captioner": "scenes", "proposed": "a dog runs", "caption": "a dog runs",
        "confidence": 0.5, "status": "unchecked", "revision": 1, "image": f"photos/{id}.png", **times,
    }  # fmt: skip
    again = put(client, 1, name="other.png", caption="a horse")
    assert (again.status_code, again.json()) == (200, row)
    changed = client.patch(f"{ROWS}/{id}", json={"revision": 1, "caption": "a cat runs"}).json()
    assert changed == {**row, "caption": "a cat runs", "status": "corrected", "revision": 2, **changed_time(changed)}
    assert client.get(ROWS).json() == {
        "rows": [changed],
        "total": 1,
        "counts": {"unchecked": 0, "accepted": 0, "corrected": 1, "skipped": 0},
    }
    (record,) = open_dataset(tmp_path / "kept").split("train")
    assert (record.image_id, record.captions) == (id, ("a cat runs",))


def changed_time(row):
    return {"changed": row["changed"]}


def test_a_photo_comes_in_every_form(client):
    (first, one), (second, two), (third, three) = map(make_photo, range(3))
    fields = {"caption": "a dog", "confidence": "0.5", "name": "a.png"}
    rows = [
        client.put(f"{ROWS}/photos/{first}", content=one, headers=PNG, params=fields),
        client.put(f"{ROWS}/photos/{second}", files={"image": ("a.png", two)}, data=fields),
        client.put(
            f"{ROWS}/photos/{third}",
            json={"image": "data:image/png;base64," + base64.b64encode(three).decode(), **fields, "confidence": 0.5},
        ),
    ]
    for response in rows:
        row = response.json()
        assert (row["name"], row["caption"], row["confidence"]) == ("a.png", "a dog", 0.5), row


def test_the_photo_and_its_thumbnail(client):
    id, content = make_photo(1)
    put(client, 1)
    photo, thumbnail = client.get(f"{ROWS}/photos/{id}"), client.get(f"{ROWS}/photos/{id}/thumbnail")
    assert (photo.content, photo.headers["content-type"]) == (content, "image/png")
    assert thumbnail.headers["content-type"] == "image/jpeg"
    with Image.open(io.BytesIO(thumbnail.content)) as small:
        assert small.size == (48, 32)
    for answer in (photo, thumbnail):
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("range", ["bytes=0-9", "bytes=9-0", "bytes=999999-", "lines=1-2", "nonsense"])
def test_a_photo_comes_whole_whatever_range_is_asked_for(client, range):
    id, content = make_photo(1)
    put(client, 1)
    photo = client.get(f"{ROWS}/photos/{id}", headers={"Range": range})
    assert (photo.status_code, photo.content) == (200, content)
    assert "accept-ranges" not in photo.headers and "content-range" not in photo.headers


@pytest.mark.parametrize("field", ["name", "caption"])
def test_a_text_that_is_too_long_is_refused(client, field):
    id, content = make_photo(1)
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    answer = client.put(f"{ROWS}/photos/{id}", json={"image": url, field: "a" * 65_537})
    assert detail(answer, 422) == f"{field} has 65,537 characters, and only a photo may have more than 65,536."


def test_two_tabs_the_second_gets_the_row_as_it_is(client):
    id, _ = make_photo(1)
    put(client, 1, caption="a dog")
    mine = client.patch(f"{ROWS}/{id}", json={"revision": 1, "status": "accepted"}).json()
    conflict = client.patch(f"{ROWS}/{id}", json={"revision": 1, "caption": "a cat"})
    assert detail(conflict, 409) == (
        "The caption was changed elsewhere: it has revision 2 by now, and the change was made from revision 1; look at "
        "it again."
    )
    assert conflict.json()["row"] == mine == client.get(ROWS).json()["rows"][0]


def test_pages_orders_and_filters(client):
    for number, confidence in enumerate((0.5, 0.25, 0.75)):
        put(client, number, caption="a dog", confidence=confidence)
    client.patch(f"{ROWS}/{make_photo(2)[0]}", json={"revision": 1, "status": "skipped"})

    def confidences(**query):
        return [row["confidence"] for row in client.get(ROWS, params=query).json()["rows"]]

    assert confidences() == [0.25, 0.5, 0.75]
    assert confidences(order="newest") == [0.75, 0.25, 0.5]
    assert confidences(offset=1, limit=1) == [0.5]
    assert confidences(status=["skipped", "accepted"]) == [0.75]
    assert client.get(ROWS, params={"status": "unchecked", "limit": 1}).json()["total"] == 2


def test_exports(client, tmp_path):
    put(client, 1, caption="=1+1", name="dog.jpg")
    put(client, 2, caption="a cat", name="../cat")
    client.patch(f"{ROWS}/{make_photo(1)[0]}", json={"revision": 1, "status": "accepted"})
    for format, kind in (("csv", "text/csv; charset=utf-8"), ("jsonl", "application/jsonl; charset=utf-8")):
        answer = client.get(f"{ROWS}/export", params={"format": format})
        assert answer.headers["content-type"] == kind
        assert answer.headers["content-disposition"] == f'attachment; filename="corrections.{format}"'
        file = tmp_path / "kept" / f"corrections.{format}"
        file.write_bytes(answer.content)
        for number, name in ((1, "dog.jpg"), (2, "cat.png")):
            (tmp_path / "kept" / name).write_bytes(make_photo(number)[1])
        assert open_dataset(file).split("train")[0].captions == ("=1+1",)
    assert "'=1+1" in (tmp_path / "kept" / "corrections.csv").read_text()
    content = client.get(f"{ROWS}/export", params={"format": "zip"}).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = ["corrections.csv", "photos/dog.png", "photos/dog.txt", "photos/cat.png", "photos/cat.txt"]
        assert archive.namelist() == names
        assert archive.read("photos/cat.png") == make_photo(2)[1]
    only = client.get(f"{ROWS}/export", params={"format": "csv", "status": "accepted"}).text
    assert only.count("\n") == 2


@pytest.mark.parametrize(
    ("method", "path", "given", "status", "sentence"),
    [
        ("PUT", "/photos/ID", {"content": b"text", "headers": PNG}, 422, "The photo has the SHA-256 982d9e3eb996"),
        ("PUT", "/photos/ID", {"content": b"x" * 100_001, "headers": PNG}, 413, "A body may have 100,000 bytes"),
        ("PUT", "/photos/ID?captoin=a", {"content": b"", "headers": PNG}, 422, 'A correction has no field "captoin"'),
        ("PUT", "/photos/ID?confidence=no", {"content": b"", "headers": PNG}, 422, "confidence: Input should be a "),
        ("PUT", "/photos/..%2Fa", {"content": b"", "headers": PNG}, 404, "There is nothing at"),
        ("GET", "/photos/12", {}, 404, "There is no photo 12 among the corrections; send it first."),
        ("GET", "/photos/12/thumbnail", {}, 404, "There is no photo 12 among the corrections; send it first."),
        ("GET", "/photos/%00%1b", {}, 404, "There is no photo \\x00\\x1b among the corrections; send it first."),
        ("GET", "?order=oldest", {}, 422, "order: Input should be 'least_sure' or 'newest'."),
        ("GET", "?status=done", {}, 422, "status.0: Input should be 'unchecked', 'accepted', 'corrected' or 'skipped'"),
        ("GET", "?limit=1001", {}, 422, "limit: Input should be less than or equal to 1000."),
        ("GET", "?offset=99999999999999999999", {}, 422, "offset: Input should be less than or equal to"),
        ("GET", "/export?format=xlsx", {}, 422, "format: Input should be 'csv', 'jsonl' or 'zip'."),
        ("PATCH", "/12", {"json": {"revision": 1, "caption": "a"}}, 404, "There is no photo 12 among the corrections"),
        ("PATCH", "/12", {"json": {"caption": "a"}}, 422, "revision: Field required."),
        ("PATCH", "/12", {"json": {"revision": 1}}, 422, 'A change needs "caption", "status" or both.'),
        ("PATCH", "/12", {"json": {"revision": 1, "x": 1}}, 422, "x: Extra inputs are not permitted."),
        (
            "PATCH",
            "/12",
            {"json": {"revision": 1, "caption": "a" * 65_537}},
            422,
            "caption has 65,537 characters, and only a photo may have more than 65,536.",
        ),
        (
            "PATCH",
            "/12",
            {"json": {"revision": 10**30, "caption": "a"}},
            422,
            "revision: whole numbers have at most 64",
        ),
        (
            "PATCH",
            "/12",
            {"content": b'{"revision": 1, "caption": "\\ud800"}', "headers": {"Content-Type": "application/json"}},
            422,
            "Character 1 of the caption is no text (U+D800",
        ),
    ],
)
def test_every_mistake_has_its_sentence(client, method, path, given, status, sentence):
    answer = client.request(method, f"{ROWS}{path.replace('ID', make_photo(1)[0])}", **given)
    assert detail(answer, status).startswith(sentence)


def test_hostile_names_come_back_as_plain_text(client):
    for number, name in enumerate(HOSTILE):
        id, content = make_photo(number)
        sent = {
            "image": "data:image/png;base64," + base64.b64encode(content).decode(),
            "name": name.replace("\ud800", ""),
        }
        row = client.put(f"{ROWS}/photos/{id}", json=sent).json()
        assert row["name"].isprintable() and 1 <= len(row["name"]) <= 200
    assert client.get(ROWS).json()["total"] == len(HOSTILE)


def test_what_the_disk_says_is_told(client, tmp_path):
    id, _ = make_photo(1)
    put(client, 1)
    (tmp_path / "kept" / "photos" / f"{id}.png").unlink()
    sentence = f"The photo {tmp_path}/kept/photos/{id}.png is missing; put it back, or send it again."
    assert detail(client.get(f"{ROWS}/photos/{id}"), 507) == sentence
    assert detail(client.get(f"{ROWS}/export?format=zip"), 507) == sentence


def test_a_server_that_is_opened_again_has_what_was_there(tmp_path):
    with open_client(tmp_path) as client:
        put(client, 1, caption="a dog")
        row = client.patch(f"{ROWS}/{make_photo(1)[0]}", json={"revision": 1, "status": "accepted"}).json()
    with open_client(tmp_path) as client:
        assert client.get(ROWS).json()["rows"] == [row]


def test_a_folder_that_cannot_be_used_is_refused_before_the_server_starts(tmp_path):
    (tmp_path / "corrections.sqlite3").write_bytes(b"no database" * 100)
    with pytest.raises(StorageError, match="is damaged, or no database at all"):
        open_client(tmp_path)


def test_without_a_folder_there_are_no_routes(tmp_path):
    with TestClient(create_app(FakeEngine(), ServeSettings()), base_url=LOCAL) as client:
        assert detail(client.get(ROWS), 404).startswith("There is nothing at /v1/corrections")


def test_the_description_has_every_route(client):
    paths = client.app.openapi()["paths"]
    described = {(path.removeprefix(ROWS), method) for path, methods in paths.items() for method in methods}
    assert {
        ("", "get"), ("/export", "get"), ("/photos/{id}", "put"), ("/photos/{id}", "get"),
        ("/photos/{id}/thumbnail", "get"), ("/{id}", "patch"),
    } <= described  # fmt: skip
    row = client.app.openapi()["components"]["schemas"]["Correction"]["properties"]
    put(client, 1)
    assert client.get(ROWS).json()["rows"][0].keys() == row.keys()


@pytest.mark.slow
def test_a_server_that_is_killed_has_what_it_confirmed(tiny_checkpoint, tmp_path):
    """The command, killed at random moments while four clients correct; the last one is asked what there is."""
    command = [sys.executable, "-m", "showtell", "serve", str(tiny_checkpoint), "--port", "0", "--corrections"]
    moments, confirmed = random.Random(0), {}

    def correct(url: str, number: int) -> None:
        """Correct one photo until the server is gone."""
        id, content = make_photo(number)
        with httpx.Client(base_url=url, timeout=60) as client, suppress(httpx.TransportError):
            row = client.put(f"{ROWS}/photos/{id}", content=content, headers=PNG, params={"caption": "a dog"}).json()
            while True:
                change = {"revision": row["revision"], "caption": f"a dog of revision {row['revision'] + 1}"}
                confirmed[id] = row = client.patch(f"{ROWS}/{id}", json=change).json()

    for _ in range(5):
        with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE, text=True) as server:
            url = server.stdout.readline().strip()
            rows = {row["id"]: row for row in httpx.get(url + ROWS[1:]).json()["rows"]}
            for id, row in confirmed.items():
                assert rows[id]["revision"] in (row["revision"], row["revision"] + 1)  # one may not have been answered
                assert rows[id]["caption"] == f"a dog of revision {rows[id]['revision']}"
            with ThreadPoolExecutor(4) as pool:
                clients = [pool.submit(correct, url, number) for number in range(4)]
                time.sleep(moments.uniform(0.3, 1.5))
                server.kill()
                assert [one.result() for one in clients] == [None] * 4
    assert sum(row["revision"] for row in confirmed.values()) > 20
