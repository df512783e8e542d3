"""Every verb with a captioner of transformers: the same command lines as for a checkpoint of ours."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from showtell.captioners import Captioner
from tests.captioners.tiny_transformers import build
from tests.cli.test_caption import as_json, loaded, run


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("blip", tmp_path_factory.mktemp("blip") / "tiny-blip")


def test_captions_in_every_format_are_the_same(capsys, blip, photos, tmp_path):
    photos = photos[:3]
    expected = [captions[0] for captions in Captioner.from_pretrained(blip, device="cpu").caption(photos)]
    status, out, _ = run(capsys, "caption", blip, *photos)
    assert status == 0
    assert [line.split("\t") for line in out.splitlines()] == [
        [str(photo), caption.text] for photo, caption in zip(photos, expected, strict=True)
    ]
    status, out, _ = run(capsys, "caption", blip, *photos, "--format", "json")
    for result, caption in zip(loaded(out), expected, strict=True):
        (best,) = result["captions"]
        assert best["text"] == caption.text and best["logprob"] == pytest.approx(caption.logprob, abs=1e-4)
        end = best["logprob"] - sum(word["logprob"] for word in best["words"])
        assert end < 1e-4 if best["finished"] else abs(end) < 1e-4
        assert 0 < best["confidence"] <= 1
    for name in ("captions.csv", "captions.jsonl"):
        file = tmp_path / name
        assert run(capsys, "caption", blip, *photos, "--out", file)[0] == 0
        texts = (
            [row["caption"] for row in csv.DictReader(io.StringIO(file.read_text()))]
            if name.endswith("csv")
            else [loaded(line)["captions"][0]["text"] for line in file.read_text().splitlines()]
        )
        assert texts == [caption.text for caption in expected]


def test_a_dataset_is_evaluated_and_calibrated_and_two_captioners_are_compared(
    capsys, blip, tiny_checkpoint, tiny_scenes
):
    asked = (tiny_scenes, "--split", "train", "--metrics", "bleu,cider")
    content = as_json(capsys, "evaluate", tiny_checkpoint, blip, *asked)
    assert [one["system"] for one in content["systems"]] == ["tiny", "tiny-blip"]
    assert all(one["scores"]["cider"] >= 0 for one in content["systems"])
    assert content["comparisons"][0]["first"] == "tiny"


def test_words_are_explained_side_by_side(capsys, blip, tiny_checkpoint, photos, tmp_path):
    page = tmp_path / "why.html"
    asked = ("explain", tiny_checkpoint, photos[0], "--against", blip, "--occlusion", "pixels")
    assert run(capsys, *asked, "--out", page)[0] == 0
    assert page.read_text().count('<section class="model"') == 2
    status, out, _ = run(capsys, *asked)
    assert status == 0
    ours, theirs = loaded(out)[0]["models"]
    for model in (ours, theirs):
        (caption,) = model["captions"]
        rows, columns = model["grid"]
        for word in caption["words"]:
            assert 0 <= word["probability"] <= 1 and len(word["logprob_drop"]) == rows * columns
            assert sum(other["probability"] for other in word["others"]) + word["probability"] < 1 + 1e-4


START = "training.start_from={blip} data.path={data} --out {out}"
ADAPT = f"train adapt/corrections {START}"
WRONG = [
    ("caption {blip} {photo} --force-word dog", "cannot honour force_words=dog; it knows "),
    ("caption {blip} {photo} --stage 0", "cannot honour stage=0; it knows "),
    (f"train scenes/sat_soft {START}", "and the recipe has the model sat; leave the sections encoder and model out"),
    (f"{ADAPT} model.adapter.rank=0", "model.adapter.rank: input should be greater than or equal to 1, got 0"),
    (f"{ADAPT} objective.label_smoothing=0.1", "objective.label_smoothing=0.1 is for models of showtell; leave it out"),
    (f"{ADAPT} data.features=store", "a captioner of transformers looks at photos itself; leave it out"),
    (f"{ADAPT} model.dropout=0.3", "model.dropout: no key of transformers, but of "),
    ("export {ours} {out}", "has a model of showtell (sat), which transformers does not have; "),
]


def test_what_it_cannot_do_is_a_sentence(capsys, blip, tiny_checkpoint, tiny_scenes, photos, tmp_path):
    names = {"blip": blip, "ours": tiny_checkpoint, "photo": photos[0], "data": tiny_scenes, "out": tmp_path / "run"}
    for command, sentence in WRONG:
        status, out, err = run(capsys, *(word.format(**names) for word in command.split()))
        assert (status, out) == (2, ""), command
        assert sentence in err and "Traceback" not in err, command
        assert not names["out"].exists()
