"""Corrections over HTTP: each route, and each mistake."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from showtell.datasets import open_dataset
from showtell.errors import UsageError
from showtell.images.descriptions import description_of
from showtell.serving.settings import ServeSettings
from tests.serving.conftest import PNG, client_of
from tests.serving.corrector import make_photo
from tests.serving.test_routes import detail

ROWS = "/v1/corrections"
XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description><rdf:Alt>{}</rdf:Alt>'
    "</dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
)


@pytest.fixture
def client(tmp_path):
    with client_of(corrections=tmp_path / "kept", max_body=100_000) as client:
        yield client


def put(client, number, **fields):
    _, content = make_photo(number)
    return client.post(f"{ROWS}/photos", content=content, headers=PNG, params=fields)


def test_from_a_photo_to_a_correction(client, tmp_path):
    id, content = make_photo(1)
    new = put(client, 1, name="dog.png", captioner="scenes", caption="a dog runs", confidence=0.5)
    assert new.status_code == 201
    row = new.json()
    assert row == {
        "id": id, "name": "dog.png", "captioner": "scenes", "proposed": "a dog runs", "caption": "a dog runs",
        "confidence": 0.5, "doubt": None, "status": "unchecked", "revision": 1, "image": f"photos/dog-{id[:12]}.png",
        "created": row["created"], "changed": row["created"],
    }  # fmt: skip
    doubted = {"captioner": "other", "confidence": 0.2, "doubt": "probably wrong"}
    anew = put(client, 1, name="other.png", caption="a horse", **doubted)  # the newest proposal, till one has decided
    news = {**doubted, "proposed": "a horse", "caption": "a horse", "revision": 2}
    assert (anew.status_code, anew.json()) == (200, {**row, **news, "changed": anew.json()["changed"]})
    assert put(client, 1, caption="a horse", **doubted).json() == anew.json()
    row = anew.json()
    changed = client.patch(f"{ROWS}/{id}", json={"revision": 2, "caption": "a cat runs"}).json()
    news = {"caption": "a cat runs", "status": "corrected", "revision": 3, "changed": changed["changed"]}
    assert changed == {**row, **news} == put(client, 1, caption="a cow").json()
    assert client.get(ROWS).json() == {"rows": [changed], "total": 1}
    assert client.app.openapi()["components"]["schemas"]["Correction"]["properties"].keys() == row.keys()
    conflict = client.patch(f"{ROWS}/{id}", json={"revision": 1, "status": "accepted"})
    assert detail(conflict, 409).startswith("The caption was changed elsewhere: it has revision 3 by now")
    assert conflict.json()["row"] == changed
    (record,) = open_dataset(tmp_path / "kept")["train"]
    assert (record.image_id, record.captions) == ("dog.png", ("a cat runs",))
    photo, thumbnail = client.get(f"{ROWS}/photos/{id}"), client.get(f"{ROWS}/photos/{id}/thumbnail")
    assert (photo.content, photo.headers["content-type"]) == (content, "image/png")
    assert thumbnail.headers["content-type"] == "image/jpeg"
    for answer in (photo, thumbnail):
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    table = client.get(f"{ROWS}/export", params={"status": ["corrected", "accepted"]})
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    assert table.headers["content-disposition"] == 'attachment; filename="corrections.csv"'
    assert table.text.splitlines()[1] == "dog.png,a cat runs,0.200,train"


def test_many_changes_are_kept_together_or_not_at_all(client):
    ids = [put(client, number, caption="a dog").json()["id"] for number in range(3)]
    client.patch(f"{ROWS}/{ids[1]}", json={"revision": 1, "caption": "a cat"})
    accept = [{"id": id, "revision": 1, "status": "accepted"} for id in ids]
    answer = client.patch(ROWS, json={"changes": accept}).json()
    changed = [(row["id"], row["status"], row["revision"]) for row in answer["rows"]]
    assert changed == [(id, "accepted", 2) for id in (ids[0], ids[2])]
    rows = client.get(ROWS).json()["rows"]
    assert answer == {"rows": [rows[0], rows[2]], "conflicts": [rows[1]]}
    bad = [{"id": ids[0], "revision": 2, "status": "unchecked"}, {"id": ids[2], "revision": 2, "caption": ""}]
    assert detail(client.patch(ROWS, json={"changes": bad}), 422).startswith("A caption that is corrected is learned")
    assert client.get(ROWS).json()["rows"] == rows


def test_sidecars_of_corrections_two_browsers_at_once_and_what_is_left_out(tmp_path):
    photos = tmp_path / "album"
    photos.mkdir()
    rename = ["same.png", "moved/other.png", "edited.png", None, "linked.png", "damaged.png", "mine.png"]
    with client_of(corrections=photos / "kept", photos=photos) as client:
        for number, name in enumerate(rename):
            id = put(client, number, name=name or "gone.png").json()["id"]
            client.patch(f"{ROWS}/{id}", json={"revision": 1, "caption": f"dog {number}"})
            if name is not None:
                (photos / name).parent.mkdir(exist_ok=True)
                (photos / name).write_bytes(make_photo(number if name != "edited.png" else 99)[1])
        (photos / "linked.png.xmp").symlink_to(tmp_path / "elsewhere")
        (photos / "damaged.png.xmp").write_text("<x:xmpmeta")
        mine = '<rdf:li xml:lang="x-default">by hand</rdf:li>'
        (photos / "mine.png.xmp").write_text(sidecar := XMP.format(mine))
        looked = client.get("/v1/sidecars").json()
        assert looked["written"] == [str(photos / "moved/other.png"), str(photos / "same.png")]
        assert not (photos / "same.png.xmp").exists()
        with ThreadPoolExecutor(2) as pool:  # two browsers
            answers = [answer.json() for answer in pool.map(client.post, ["/v1/sidecars?keywords=true"] * 2)]
        assert sorted(name for answer in answers for name in answer["written"]) == looked["written"]
        assert sorted(name for answer in answers for name in answer["same"]) == looked["written"]
        left_out = dict(zip(("gone", "edited", "mine", "damaged", "linked"), answers[0]["left_out"], strict=True))
        assert left_out["gone"] == f"gone.png is not in {photos}."
        edited = f"{photos / 'edited.png'} was edited after its caption was corrected; correct it again."
        assert left_out["edited"] == edited
        assert left_out["mine"] == f"{photos / 'mine.png'} keeps what a person wrote in {photos / 'mine.png.xmp'}."
        assert "damaged.png.xmp" in left_out["damaged"] and "is a link" in left_out["linked"]
    assert description_of(photos / "moved" / "other.png").text == "dog 1"
    assert (photos / "mine.png.xmp").read_text() == sidecar
    assert not any(path.suffix == ".xmp" for path in (photos / "kept").rglob("*"))
    wrong = ({"photos": photos}, "needs corrections="), ({"photos": "no", "corrections": "a"}, "is no f")
    for given, problem in wrong:
        with pytest.raises(UsageError, match=problem):
            ServeSettings.checked(given)


def test_every_mistake_has_its_sentence(client):
    id = put(client, 1).json()["id"]
    for method, path, given, status, sentence in (
        ("POST", "/photos", {"content": b"text"}, 422, '"photo" is not an image: it holds text.'),
        ("POST", "/photos", {"content": b"x" * 100_001}, 413, "A body may have 100,000 bytes"),
        ("POST", "/photos?confidence=no", {"content": b""}, 422, "confidence: Input should be a "),
        ("GET", "/photos/12", {}, 404, "There is no photo 12 among the corrections; send it first."),
        ("GET", "/photos/%00%1b", {}, 404, "There is no photo \\x00\\x1b among the corrections; send it first."),
        ("GET", "?status=done", {}, 422, "status.0: Input should be 'unchecked', 'accepted', 'corrected' or 'skipped'"),
        ("GET", "?offset=99999999999999999999", {}, 422, "offset: Input should be less than or equal to"),
        ("PATCH", "/12", {"json": {"revision": 1, "caption": "a"}}, 404, "There is no photo 12 among the corrections"),
        ("PATCH", "/12", {"json": {"caption": "a"}}, 422, "revision: Field required."),
        ("PATCH", f"/{id}", {"json": {"revision": 1}}, 422, 'A change needs "caption", "status" or both.'),
        ("PATCH", "/12", {"json": {"revision": 10**30, "caption": "a"}}, 422, "revision: whole numbers have at most"),
    ):
        answer = client.request(method, f"{ROWS}{path}", **given)
        assert detail(answer, status).startswith(sentence), path
    with client_of() as without_folder:
        assert detail(without_folder.get(ROWS), 404).startswith("There is nothing at /v1/corrections")


def test_what_the_disk_says_is_told(client, tmp_path):
    id, _ = make_photo(1)
    file = tmp_path / "kept" / put(client, 1).json()["image"]
    file.unlink()
    sentence = f"The photo {file} is missing; put it back, or send it again."
    assert detail(client.get(f"{ROWS}/photos/{id}"), 507) == sentence
