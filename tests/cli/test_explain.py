"""`showtell explain` as a person calls it."""

import json
import math
import shutil
from pathlib import Path
from typing import get_args

import pytest
import torch
from PIL import Image

from showtell.captioners.saliency import METHODS
from showtell.cli.explain import SaliencyMethod
from showtell.datasets import open_dataset
from showtell.decoding import teacher_forced
from tests.cli.test_caption import copied, run


@pytest.fixture
def photos(photos: list[Path], tmp_path: Path) -> Path:
    """A folder of three photos."""
    return copied(photos[:3], tmp_path / "photos", "{}.png".format)


def test_json_is_that_of_python(capsys, tiny_checkpoint, captioner, photos):
    explanations = json.loads(run(capsys, "explain", tiny_checkpoint, photos, "--num-beams", 3)[1])
    paths = sorted(photos.iterdir())
    for one in captioner.explain(paths, num_beams=3):
        content = one.to_json()
        content["models"][0]["model"] = "tiny"
        assert explanations[paths.index(Path(one.image))] == content
    assert len(explanations) == 3


def test_pictures_one_file_or_a_folder_of_several(capsys, tiny_checkpoint, photos, tmp_path):
    first = sorted(photos.iterdir())[0]
    one = tmp_path / "one.png"
    assert run(capsys, "explain", tiny_checkpoint, first, "--out", one)[:2] == (0, f"{one}\n")
    with Image.open(one) as image:
        assert image.format == "PNG"
    assert run(capsys, "explain", tiny_checkpoint, photos, "--out", tmp_path / "figures")[0] == 0
    names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert names == sorted(f"{path.stem}.png" for path in photos.iterdir())
    (photos / "more").mkdir()
    for name in (f"more/{first.name}", f"{first.stem}-2.png"):
        shutil.copy(first, photos / name)
    assert run(capsys, "explain", tiny_checkpoint, photos, "--out", tmp_path / "twins")[0] == 0
    assert len([*(tmp_path / "twins").iterdir()]) == 5


def test_a_dataset_brings_references_scores_and_the_worst_first(capsys, tiny_checkpoint, tiny_scenes):
    explanations = json.loads(run(capsys, "explain", tiny_checkpoint, tiny_scenes, "--split", "val")[1])
    records = {str(record.path): record for record in open_dataset(tiny_scenes)["val"]}
    assert {one["image"] for one in explanations} == set(records)
    scores = [one["models"][0]["scores"] for one in explanations]
    assert [next(iter(one)) for one in scores] == ["truth"] * len(explanations)
    assert [one["truth"] for one in scores] == sorted(one["truth"] for one in scores)
    for one in explanations:
        assert one["references"] == list(records[one["image"]].captions)


def test_a_limit_leaves_photos_out_and_says_so(capsys, tiny_checkpoint, tiny_scenes):
    status, out, err = run(capsys, "explain", tiny_checkpoint, tiny_scenes, "--split", "train", "--limit", 2)
    assert status == 0 and len(json.loads(out)) == 2
    more = len(open_dataset(tiny_scenes)["train"]) - 2
    assert f"{more} more photos of the split train were skipped; --limit includes more." in err


def test_models_are_put_side_by_side_in_their_order(capsys, tiny_checkpoint, photos, tmp_path):
    for name in ("b", "a"):
        shutil.copytree(tiny_checkpoint, tmp_path / name / "best")
    against = ["--against", tmp_path / "a" / "best", "--against", tiny_checkpoint]
    for one in json.loads(run(capsys, "explain", tmp_path / "b" / "best", photos, *against)[1]):
        assert [model["model"] for model in one["models"]] == ["b", "a", "tiny"]
        assert one["models"][0]["captions"] == one["models"][2]["captions"]


def test_the_option_has_all_saliency_methods():
    assert get_args(SaliencyMethod) == METHODS


def test_what_is_no_image_is_named_at_the_end(capsys, tiny_checkpoint, photos, tmp_path):
    (photos / "bad.jpg").write_text("no picture")
    page = tmp_path / "report.html"
    status, _, err = run(capsys, "explain", tiny_checkpoint, photos, "--out", page)
    assert status == 2 and page.is_file() and "1 of 4 files could not be explained" in err
    status, out, _ = run(capsys, "explain", tiny_checkpoint, photos)
    bad = str(photos / "bad.jpg")
    assert (status, json.loads(out)[3]) == (2, {"image": bad, "error": f"{bad} is not an image: it holds text."})


def test_a_given_caption_is_followed_word_by_word(capsys, tiny_checkpoint, captioner, photos):
    """The attention and the probabilities are those of teacher forcing; a word that the model does not know is one."""
    photo = sorted(photos.iterdir())[0]
    _, out, _ = run(capsys, "explain", tiny_checkpoint, photo, "--caption", "a red zebra above a circle")
    (explained,) = json.loads(out)[0]["models"][0]["captions"]
    assert [word["word"] for word in explained["words"]] == ["a", "red", "<unknown>", "above", "a", "circle"]
    (expected,) = captioner.logprobs(photo, "a red zebra above a circle")
    assert captioner.logprobs(photo, []) == []
    chances = [math.exp(word.logprob) for word in expected.words]
    assert [word["probability"] for word in explained["words"]] == pytest.approx(chances, abs=1e-5)
    ids = captioner.vocabulary.encode([word["word"] for word in explained["words"]])
    features = next(captioner.encode_photos([photo]))
    attention = teacher_forced(captioner.decoder, features, torch.tensor([[ids[:-2]]])).outputs.attention
    torch.testing.assert_close(torch.tensor(explained["attention"]), attention[0, 0].detach(), atol=1e-4, rtol=0)
