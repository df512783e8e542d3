"""`showtell evaluate --server`: whole sets for COCO's evaluation server, in small."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from showtell.captioners import Captioner
from showtell.cli import evaluate_server
from showtell.datasets import open_dataset
from showtell.datasets.coco import SERVER_SETS, read, server_lists
from showtell.features.extraction import extract
from tests.cli.test_evaluate import run

VAL, TEST = "captions_val2014_tiny_results.json", "captions_test2014_tiny_results.json"
IDS = {"val2014": [42, 73, 74], "test2014": [1, 16, 90, 128, 155]}


@pytest.fixture
def coco(tiny_scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """COCO's folder: three images of val2014 with captions, five of test2014 without. The tests run beside it."""
    photos = iter(open_dataset(tiny_scenes).records)
    folder = tmp_path / "coco"
    (folder / "annotations").mkdir(parents=True)
    for name, ids in IDS.items():
        (folder / name).mkdir()
        images = [{"id": number, "file_name": f"COCO_{name}_{number:012}.jpg"} for number in ids]
        content: dict[str, Any] = {"info": {}, "licenses": [], "images": images}
        if name == "val2014":
            content["annotations"] = [
                {"id": number, "image_id": number, "caption": "A red circle."} for number in ids for _ in range(2)
            ]
        for image in images:
            shutil.copy(next(photos).path, folder / name / str(image["file_name"]))
        (folder / "annotations" / SERVER_SETS[name][0]).write_text(json.dumps(content))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate_server, "BATCH", 2)
    return folder


def contents() -> dict[str, bytes]:
    """The files of the archive."""
    with zipfile.ZipFile("results.zip") as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_both_sets_are_captioned_and_packed(capsys, tiny_checkpoint, coco):
    assert run("evaluate", tiny_checkpoint, coco, "--server", "tiny", "--metrics", "bleu", "--json") == 0
    printed, warned = capsys.readouterr()
    assert set(contents()) == {VAL, TEST}
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    for name, file in (("val2014", VAL), ("test2014", TEST)):
        assert contents()[file] == Path(file).read_bytes()
        results = json.loads(Path(file).read_text())
        assert [entry["image_id"] for entry in results] == IDS[name]
        for entry in results:
            photo = coco / name / f"COCO_{name}_{entry['image_id']:012}.jpg"
            assert entry == {"image_id": entry["image_id"], "caption": captioner.caption(photo)[0].text}
    assert "results.zip is ready for the server" in warned
    assert "lists 5 images; COCO's test2014 has 40,775" in warned
    card = json.loads(printed)
    assert (card["split"], card["images"]) == ("val2014", 3)
    assert not list(Path().glob("*.part"))


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("as_file", [False, True])
def test_one_set_alone(capsys, tiny_checkpoint, coco, name, as_file):
    dataset = coco / "annotations" / SERVER_SETS[name][0] if as_file else coco
    assert run("evaluate", tiny_checkpoint, dataset, "--server", f"{name}_tiny", "--metrics", "bleu") == 0
    results = json.loads(Path(f"captions_{name}_tiny_results.json").read_text())
    assert [entry["image_id"] for entry in results] == IDS[name]
    assert not Path("results.zip").exists()
    assert ("bleu_4" in capsys.readouterr().out) == (name == "val2014")  # test2014 has no references


def interrupted_after(photos: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the captioner stop as if by Ctrl-C after so many photos; call the result to undo it."""
    caption_photos = Captioner.caption_photos
    captioned = 0

    def stopping(self, *arguments, **options):
        nonlocal captioned
        for result in caption_photos(self, *arguments, **options):
            if captioned == photos:
                raise KeyboardInterrupt
            captioned += 1
            yield result

    monkeypatch.setattr(Captioner, "caption_photos", stopping)
    return lambda: monkeypatch.setattr(Captioner, "caption_photos", caption_photos)


@pytest.mark.parametrize("photos", [0, 1, 2, 3, 5, 7])
def test_an_interrupted_run_resumes_to_the_same_bytes(capsys, tiny_checkpoint, coco, monkeypatch, photos):
    command = ("evaluate", tiny_checkpoint, coco, "--server", "tiny", "--metrics", "bleu", "--json")
    assert run(*command) == 0
    expected = Path("results.zip").read_bytes()
    for file in ("results.zip", VAL, TEST):
        Path(file).unlink()
    undo = interrupted_after(photos, monkeypatch)
    assert run(*command) == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert not any(Path(file).exists() for file in ("results.zip", VAL, TEST))
    undo()
    assert run(*command) == 0
    assert ("images are done" in capsys.readouterr().err) == (photos >= 2)  # a whole batch
    assert Path("results.zip").read_bytes() == expected


def test_an_incomplete_set_is_refused_and_completed_later(capsys, tiny_checkpoint, coco):
    photo = coco / "test2014" / "COCO_test2014_000000000090.jpg"
    whole = photo.read_bytes()
    command = ("evaluate", tiny_checkpoint, coco, "--server", "tiny", "--metrics", "bleu")
    photo.unlink()
    assert run(*command) == 2
    assert "The server takes none but whole sets, and 1 image file of test2014 is missing: " in capsys.readouterr().err
    assert not Path(f"{VAL}.part").exists()  # nothing was captioned for nothing
    photo.write_bytes(whole[:100])
    assert run(*command) == 2
    error = capsys.readouterr().err
    assert "1 image of test2014's 5 could not be captioned: " in error
    assert "COCO_test2014_000000000090.jpg" in error
    assert not Path(TEST).exists()
    assert not Path("results.zip").exists()
    photo.write_bytes(whole)
    assert run(*command) == 0
    assert "resuming" in capsys.readouterr().err
    assert [entry["image_id"] for entry in json.loads(contents()[TEST])] == IDS["test2014"]


def test_features_in_the_place_of_photos(tiny_checkpoint, coco, monkeypatch):
    command = ("evaluate", tiny_checkpoint, coco, "--server", "tiny", "--metrics", "bleu")
    assert run(*command) == 0
    expected = contents()
    records = [record for file in server_lists(coco).values() for record in read(file).records]
    extract(Captioner.from_pretrained(tiny_checkpoint).encoder, records, Path("store"), dtype="fp32", batch_size=4)
    for name in IDS:
        shutil.rmtree(coco / name)
    monkeypatch.setattr(evaluate_server, "_STORED", 2)
    assert run(*command, "--features", "store") == 0
    assert contents() == expected


def test_a_run_with_other_settings_does_not_resume(capsys, tiny_checkpoint, coco, monkeypatch):
    undo = interrupted_after(4, monkeypatch)
    assert run("evaluate", tiny_checkpoint, coco, "--server", "tiny") == 130
    undo()
    assert run("evaluate", tiny_checkpoint, coco, "--server", "tiny", "--num-beams", 3) == 2
    assert "were made with other settings: decoding.num_beams (was 2, now 3)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server", "tiny", "--limit", 2], "--limit leaves images out, and COCO's server takes none but whole sets"),
        (["--server", "tiny", "--out", "x.json"], "--server names its files itself"),
        (["--server", "a/b"], '--server "a/b" goes into a file name'),
    ],
)
def test_options_that_do_not_go_together(capsys, tiny_checkpoint, coco, options, message):
    assert run("evaluate", tiny_checkpoint, coco, *options) == 2
    assert message in capsys.readouterr().err


def test_a_missing_list_and_a_damaged_one(capsys, tiny_checkpoint, coco, tiny_scenes):
    assert run("evaluate", tiny_checkpoint, tiny_scenes, "--server", "tiny") == 2
    assert "has no annotations/captions_val2014.json and no annotations/image_info_test2014.json" in (
        capsys.readouterr().err
    )
    images = coco / "annotations" / "image_info_test2014.json"
    content = json.loads(images.read_text())
    content["images"].append(content["images"][0] | {"file_name": "other.jpg"})
    images.write_text(json.dumps(content))
    assert run("evaluate", tiny_checkpoint, coco, "--server", "tiny") == 2
    assert "1 id stands for different images" in capsys.readouterr().err
    images.unlink()
    assert run("evaluate", tiny_checkpoint, coco, "--server", "tiny") == 2
    assert "has no annotations/image_info_test2014.json; name COCO's folder, or give" in capsys.readouterr().err


def test_images_without_captions_are_no_dataset_to_train_on(capsys, tiny_checkpoint, coco):
    assert server_lists(coco).keys() == IDS.keys()
    assert run("evaluate", tiny_checkpoint, coco / "annotations" / "image_info_test2014.json") == 2
    assert "5 images have no caption: 1, 16, 90, 128, 155" in capsys.readouterr().err
    # beside captions the list is left alone
    assert open_dataset(coco).splits == {"val": 3}
