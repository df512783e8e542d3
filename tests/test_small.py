"""The captioner that comes with showtell: the same captions of its three photos everywhere, on any processor."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from showtell import Captioner
from showtell.captions import UNFAMILIAR
from showtell.hub import IN_THE_BOX, PHOTOS
from showtell.quickstart.photos import caption_photos
from showtell.serving.app import create_app
from showtell.serving.engine import Engine
from showtell.serving.settings import ServeSettings
from tests.cli.test_caption import run

# Of each photo its caption, the log-probability, and the doubt.
GOLDEN = {
    "camera": ("a man is holding a camera on a tripod", -8.0585, None),
    "cat": ("a cat sitting on the side of a cat", -9.5356, "unlike the photos it knows"),
    "coffee": ("a white plate is sitting on a table", -8.3428, None),
}  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Captioner:
    return Captioner.from_pretrained("small", "cpu")


def test_it_captions_its_photos_as_ever(small):
    assert sum(file.stat().st_size for file in IN_THE_BOX["small"].rglob("*")) < 24e6  # it comes in the wheel
    assert [photo.stem for photo in PHOTOS] == list(GOLDEN)
    for photo in PHOTOS:
        (caption,) = small.caption(photo)
        text, logprob, doubt = GOLDEN[photo.stem]
        assert (caption.text, caption.doubt) == (text, doubt)
        assert caption.logprob == pytest.approx(logprob, abs=1e-3)
        assert caption.calibrated_confidence is not None


def test_the_quickstart_explanations_and_the_server_say_the_same(small, tmp_path, capsys):
    shown = caption_photos(tmp_path)
    assert [example["caption"] for example in shown["examples"]] == [text for text, _, _ in GOLDEN.values()]
    for (_, _, doubt), example in zip(GOLDEN.values(), shown["examples"], strict=True):
        assert example["confidence"].partition(", ")[2] == (doubt or "")
    page = Path(shown["page"]).read_text(encoding="utf-8")
    assert all(text in page for text, _, _ in GOLDEN.values())
    settings = ServeSettings()
    with TestClient(create_app(Engine({"small": small}, settings), settings), base_url="http://127.0.0.1") as client:
        for photo, (text, logprob, doubt) in zip(PHOTOS, GOLDEN.values(), strict=True):
            answer = client.post("/v1/captions", content=photo.read_bytes(), headers={"Content-Type": "image/jpeg"})
            (caption,) = answer.json()["captions"]
            assert (caption["text"], caption["doubt"]) == (text, doubt)
            assert caption["logprob"] == pytest.approx(logprob, abs=1e-3)


def test_the_command_says_what_it_knows_and_marks_what_it_doubts(capsys):
    status, out, err = run(capsys, "caption", "small", *PHOTOS)
    assert status == 0
    assert "words, learned from 7,937 photos of Flickr8k and COCO" in err and "people, animals, food" in err
    for line, photo, (text, _, doubt) in zip(out.splitlines(), PHOTOS, GOLDEN.values(), strict=True):
        name, caption, stated = line.split("\t")
        assert (name, caption, stated.partition(", ")[2]) == (str(photo), text, doubt or "")


def test_its_guesses_are_named_and_not_written_beside_photos_unless_they_should_be(tmp_path, capsys):
    for photo in PHOTOS:
        shutil.copy(photo, tmp_path)
    doubted = [tmp_path / photo.name for photo, (*_, doubt) in zip(PHOTOS, GOLDEN.values(), strict=True) if doubt]
    err = run(capsys, "caption", "small", tmp_path, "--xmp")[2]
    assert f"1 photos have a doubtful caption, which is not written: {doubted[0]}; --accept-above 0 writes it." in err
    assert "1 files are written" in run(capsys, "caption", "small", tmp_path, "--xmp", "--accept-above", 0)[2]
    assert f'Doubt="{UNFAMILIAR}"' in Path(f"{doubted[0]}.xmp").read_text(encoding="utf-8")
    assert all('Captioner="small"' in file.read_text(encoding="utf-8") for file in tmp_path.glob("*.xmp"))
