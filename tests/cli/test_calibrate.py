"""`showtell calibrate`, and what `showtell caption` makes of it."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.evaluation import caption_records
from tests.cli.test_caption import as_json, run


def write_table(folder: Path, texts: list[str]) -> None:
    photos = sorted(folder.glob("*.png"))
    with (folder / "captions.csv").open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["image", "caption", "split"])
        for number, (photo, text) in enumerate(zip(photos, texts, strict=True)):
            rows.writerow([photo.name, text, "val" if number < 50 else "train"])


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, folder)
    return folder


@pytest.fixture
def dataset(tiny_scenes: Path, checkpoint: Path, tmp_path: Path) -> Path:
    """The tiny pictures with captions of which every other is a sample of the model itself: half of its are good."""
    folder = tmp_path / "data"
    shutil.copytree(tiny_scenes / "images", folder)
    other = "a red circle above a blue square"
    write_table(folder, [other] * 60)
    captioner = Captioner.from_pretrained(checkpoint)
    settings = captioner.settings(search="sample", min_length=5)
    captions = caption_records(captioner, open_dataset(folder).records, settings).values()
    write_table(folder, [caption.text if number % 2 else other for number, caption in enumerate(captions)])
    return folder


SEARCH = ["--search", "sample", "--min-length", 5]


def test_it_is_fitted_kept_shown_and_used(capsys, checkpoint, dataset):
    status, out, err = run(capsys, "calibrate", checkpoint, dataset, *SEARCH)
    assert (status, err) == (0, "")
    fitted = Captioner.from_pretrained(checkpoint).calibration
    assert fitted.captions == 50
    lines = out.splitlines()
    assert lines[0] == "50 captions; a good one: CIDEr-D of 0.4 or more"
    before, after = (one.expected_calibration_error for one in (fitted.before, fitted.reliability))
    assert lines[3].split() == ["expected", "calibration", "error", f"{before:.3f}", f"{after:.3f}"]
    assert after < before  # word probabilities of a fresh model are near 1/V, and half of its captions are good
    assert sum(int(line.split()[0]) for line in lines[8:18]) == 50
    assert lines[-1] == str(checkpoint / "calibration.json")
    photos = sorted(dataset.glob("*.png"))[:4]
    status, out, _ = run(capsys, "caption", checkpoint, *photos, *SEARCH, "--format", "json")
    assert status == 0
    content = [row["captions"][0] for row in json.loads(out)]
    captioner = Captioner.from_pretrained(checkpoint)
    plain = [best for (best,) in captioner.caption(photos, search="sample", min_length=5)]
    expected = [one.calibrated_confidence for one in plain]
    assert [caption["confidence"] for caption in content] == pytest.approx(expected, abs=1e-5)
    status, out, _ = run(capsys, "caption", checkpoint, *photos, *SEARCH)
    expected = [f"{one['confidence']:.0%}" + (f", {one['doubt']}" if one["doubt"] else "") for one in content]
    assert [line.split("\t")[2] for line in out.splitlines()] == expected
    status, out, _ = run(capsys, "caption", checkpoint, *photos, *SEARCH, "--format", "csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["confidence"] for row in rows] == [f"{one['confidence']:.3f}" for one in content]
    assert [row["doubt"] for row in rows] == [one["doubt"] or "" for one in content]


def test_json_has_the_whole_calibration(capsys, checkpoint, dataset):
    content = as_json(capsys, "calibrate", checkpoint, dataset, *SEARCH, "--limit", 30)
    assert (content["captions"], content["split"]) == (30, "val")
    assert content["file"] == str(checkpoint / "calibration.json")
    assert content["before"]["expected_calibration_error"] > content["reliability"]["expected_calibration_error"]
    kept = json.loads((checkpoint / "calibration.json").read_text())
    assert content | kept["calibration"] == content | {"familiarity": kept["calibration"]["familiarity"]}


def test_what_does_not_fit_is_a_sentence(capsys, checkpoint, dataset, tiny_scenes):
    photo = min(dataset.glob("*.png"))
    status, _, err = run(capsys, "calibrate", checkpoint, tiny_scenes)
    assert status == 2 and "captions of which 0 are good (every statement is true)" in err
    assert not (checkpoint / "calibration.json").exists()
    assert run(capsys, "calibrate", checkpoint, dataset, *SEARCH)[0] == 0
    status, out, err = run(capsys, "caption", checkpoint, photo)
    assert (status, out.count("\t")) == (0, 1)
    assert "confidences are not calibrated: the calibration beside the weights is for another search" in err
    (checkpoint / "calibration.json").write_text('{"weights": 3}')
    status, out, err = run(capsys, "caption", checkpoint, photo, *SEARCH)
    assert (status, out) == (2, "") and f"{checkpoint / 'calibration.json'} is no calibration" in err


@pytest.mark.parametrize("kept", [50, 30])
def test_a_captioner_that_learned_keeps_its_marks(capsys, checkpoint, dataset, tmp_path, kept):
    """Fitted where 40 photos were kept apart, else the start's."""
    photos = sorted(dataset.glob("*.png"))
    for photo in photos[kept:50]:
        photo.unlink()
    captioner = Captioner.from_pretrained(checkpoint)
    first = captioner.caption(photos[0])[0].text
    rows = [f"{photo.name},{first if n % 2 else 'a zebra'},val" for n, photo in enumerate(photos[:kept])]
    rows += [f"{photo.name},a zebra at last,train" for photo in photos[50:]]
    (dataset / "captions.csv").write_text("\n".join(["image,caption,split", *rows]))
    assert run(capsys, "calibrate", checkpoint, dataset)[0] == 0
    before, folder = Captioner.from_pretrained(checkpoint).calibration, tmp_path / "run"
    given = [f"data.path={dataset}", f"training.start_from={checkpoint}", "training.epochs=1"]
    # a rate so that its captions, and which are good, stay as they are
    given += ["vocabulary.extend=false", "training.learning_rate=1e-9"]
    status, _, err = run(capsys, "train", "adapt/corrections", *given, "--out", folder)
    assert status == 0, err
    after = Captioner.from_pretrained(folder / "best").calibration
    assert after.familiarity == before.familiarity
    if kept == 50:
        assert "by which captions are marked, was fitted to the 50 photos of val" in err
        assert after.captions == 50 and after.weights == pytest.approx(before.weights, abs=1e-4)
    else:
        assert f"marked, is that of {checkpoint}, as 30 photos of val are too few, and it takes 40" in err
        assert after == before
