"""Predictions as `showtell caption` writes them, matched to images by the names of their photos."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.scores import ImageFacts
from showtell.scores.files import ScoredImages, read_prediction_file, read_scored_images
from tests.cli.test_caption import run

STYLES = ("json", "jsonl", "csv")


def images_of(*ids: str, **files: str) -> ScoredImages:
    return ScoredImages({image: ImageFacts(("a dog",)) for image in ids}, files=files)


def result(name: str, *texts: str) -> dict[str, Any]:
    return {"image": name, "captions": [{"text": text, "logprob": -1.0} for text in texts]}


def written(folder: Path, *results: dict[str, Any], style: str = "json") -> Path:
    path = folder / f"captions.{style}"
    if style == "json":
        path.write_text(json.dumps(results))
    elif style == "jsonl":
        path.write_text("".join(f"{json.dumps(one)}\n" for one in results))
    else:
        rows = [(one["image"], caption["text"]) for one in results for caption in one.get("captions", ())]
        path.write_text("image,caption\n" + "".join(f"{name},{text}\n" for name, text in rows))
    return path


def test_what_caption_writes_is_scored_like_what_evaluate_writes(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    """The same photos captioned by both verbs have the same scores, matched by path, and by number elsewhere."""
    results = tmp_path / "results.json"
    given = ["--metrics", "bleu,cider", "--json"]
    assert run(capsys, "evaluate", tiny_checkpoint, tiny_scenes, *given, "--out", results)[0] == 0
    expected = json.loads(run(capsys, "score", results, "--references", tiny_scenes, *given)[1])
    photos = [record.path for record in open_dataset(tiny_scenes).split("test")]
    copies = [Path(shutil.copy(photo, tmp_path / f"copy_{photo.name}")) for photo in photos]
    by_path, by_number = (photos, "full path"), (copies, "number at the end of the file name")
    for style, (named, kind) in zip(STYLES, (by_path, by_number, by_path), strict=True):
        out = tmp_path / f"{kind[:4]}.{style}"
        assert run(capsys, "caption", tiny_checkpoint, *named, "--out", out)[0] == 0
        status, printed, err = run(capsys, "score", out, "--references", tiny_scenes, *given)
        assert (status, json.loads(printed)) == (0, {**expected, "system": out.name})
        assert f"showtell: Photos of {out} are matched to images by {kind}: {len(photos)} of {len(photos)}.\n" in err


NAMED = [
    (images_of("dog.jpg", "b.jpg"), "x/dog.jpg", "dog.jpg", "file name"),
    (images_of("x/dog.jpg", "y/dog.jpg"), "x/dog.jpg", "x/dog.jpg", "full path"),
    (images_of("dog", "cat"), "x/dog.jpg", "dog", "file name without suffix"),
    (images_of("42", "7"), "COCO_val2014_000000000042.jpg", "42", "number at the end of the file name"),
    (ScoredImages({"9": ImageFacts()}, files={"9": "train/a.jpg"}), "/photos/a.jpg", "9", "file name"),
]


def test_photos_are_matched_by_the_most_specific_name(tmp_path):
    for images, photo, image, kind in NAMED:
        for style in STYLES:
            path = written(tmp_path, result(photo, "a dog", "a cat"), style=style)
            captions, notes = read_prediction_file(path, images)
            assert captions == {image: "a dog"}  # the first of two
            assert notes == [f"Photos of {path} are matched to images by {kind}: 1 of 1."]


def test_one_kind_of_name_counts_for_all_photos_and_missing_captions_are_told(tmp_path):
    broken = {"image": "b.jpg", "error": "b.jpg is broken."}
    path = written(tmp_path, result("x/a.jpg", "a"), result("x/d.jpg", "d"), result("x/c_7.jpg", "c"), broken)
    captions, notes = read_prediction_file(path, images_of("a.jpg", "d.jpg", "7"))
    assert captions == {"a.jpg": "a", "d.jpg": "d", "x/c_7.jpg": "c"}  # the last is of no image
    assert notes == [
        f"Photos of {path} are matched to images by file name: 2 of 3.",
        f"{path} has no caption of 1 of 4 photos: b.jpg.",
    ]


def test_file_names_of_a_coco_dictionary_are_known(tmp_path):
    coco = {
        "images": [{"id": 5, "file_name": "dog.jpg"}],
        "annotations": [{"id": 1, "image_id": 5, "caption": "a dog"}],
    }
    (tmp_path / "captions.json").write_text(json.dumps(coco))
    images = read_scored_images(tmp_path / "captions.json", "test")
    path = written(tmp_path, result("/photos/dog.jpg", "a dog"), style="jsonl")
    assert read_prediction_file(path, images)[0] == {"5": "a dog"}


UNMATCHED = [
    ("a.json", [result("x.jpg", "a")], "is one of the images to score (1.jpg, 2.jpg; --split chooses others): photos"),
    ("a.json", [result("a/1.jpg", "a"), result("b/1.jpg", "a")], "more than one photo for image 1.jpg (a/1.jpg, b/1"),
    ("a.json", [result("1.jpg", "a"), result("1.jpg", "b")], "a.json has captions of 1.jpg twice; keep one"),
    ("a.json", [result("1.jpg", "a"), {"image": 7}], "Entry 1 of "),
    ("a.json", [result("1.jpg", "a"), 7], "Entry 1 of "),
    ("a.json", [{"image": "1.jpg", "error": "broken"}], "a.json has captions of no photo, and none of them is one of"),
    ("a.jsonl", '{"image": "1.jpg"\n', "Line 1 of "),
    ("a.csv", "image,text\n1.jpg,a\n", "a.csv has no column caption, or neither image nor image_id; predictions have"),
    ("a.csv", 'image,caption\n1.jpg,"a', "a.csv cannot be read as CSV: "),
    ("none.csv", None, "There is no file "),
]


def test_what_cannot_be_matched_is_a_sentence(tmp_path):
    for name, content, sentence in UNMATCHED:
        path = tmp_path / name
        if content is not None:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(DataError) as caught:
            read_prediction_file(path, images_of("1.jpg", "2.jpg"))
        assert sentence in str(caught.value)
