"""Files of predictions in the forms that people have, matched to images by id or by the names of their photos."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.scores import ImageFacts
from showtell.scores.files import ScoredImages, read_prediction_file, read_scored_images
from tests.cli.test_caption import run


def images_of(*ids: str, **files: str) -> ScoredImages:
    return ScoredImages({image: ImageFacts(("a dog",)) for image in ids}, files=files)


def test_what_caption_writes_is_scored_like_what_evaluate_writes(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    results = tmp_path / "results.json"
    given = ["--metrics", "bleu,cider", "--json"]
    assert run(capsys, "evaluate", tiny_checkpoint, tiny_scenes, *given, "--out", results)[0] == 0
    expected = json.loads(run(capsys, "score", results, "--references", tiny_scenes, *given)[1])
    photos = [record.path for record in open_dataset(tiny_scenes).split("test")]
    copies = [Path(shutil.copy(photo, tmp_path / f"copy_{photo.name}")) for photo in photos]
    by_path, by_number = (photos, "full path"), (copies, "number at the end of the file name")
    for style, (named, kind) in zip(("json", "jsonl", "csv"), (by_path, by_number, by_path), strict=True):
        out = tmp_path / f"{kind[:4]}.{style}"
        assert run(capsys, "caption", tiny_checkpoint, *named, "--out", out)[0] == 0
        status, printed, err = run(capsys, "score", out, "--references", tiny_scenes, *given)
        assert (status, json.loads(printed)) == (0, {**expected, "system": out.name})
        assert f"showtell: Photos of {out} are matched to images by {kind}: {len(photos)} of {len(photos)}.\n" in err


FORMS = [  # a file's suffix and content, which is {"42": "a dog", "7": "a cat"}
    ("json", '{"42": "a dog", "7": "a cat"}'),
    ("json", '{"42": ["a dog"], "7": [{"caption": "a cat", "text": "a cat"}]}'),
    ("json", '[{"42": "a dog"}, {"7": "a cat"}]'),
    ("json", '[{"image_id": 42, "caption": "a dog", "id": 1}, {"image_id": 7, "caption": "a cat", "id": 2}]'),
    ("json", '{"question_id": 0, "image_id": 42, "text": "a dog"}\n{"question_id": 1, "image_id": 7, "text": "a cat"}'),
    ("json", '{\n  "image_id": 42,\n  "text": "a dog"\n}\n{\n  "image_id": 7,\n  "text": "a cat"\n}\n'),
    ("jsonl", '\ufeff{"id": 42, "answer": "a dog"}\n\n{"id": 7, "pred": "a cat"}\n'),
    ("jsonl", '{"image": "COCO_val2014_000000000042.jpg", "prediction": "a dog"}\n{"image": "7.jpg", "text": "a cat"}'),
    ("json", '{"COCO_val2014_000000000042.jpg": "a dog", "COCO_val2014_000000000007.jpg": "a cat"}'),
    ("json", '[{"image": "x/42.jpg", "captions": [{"text": "a dog"}, {}]}, {"image": "7", "text": "a cat"}]'),
    ("csv", "image_id,caption\n42,a dog\n7,a cat\n"),
    ("csv", "id;model;text\n42;x;a dog\n7;y;a cat\n"),
    ("tsv", 'file_name\tcaption\n42.jpg\ta dog\n7.jpg\t"a cat"\n'),
]  # fmt: skip


def test_the_forms_that_people_have(tmp_path):
    for suffix, content in FORMS:
        path = tmp_path / f"captions.{suffix}"
        path.write_text(content, encoding="utf-8")
        assert read_prediction_file(path, images_of("42", "7")) == {"42": "a dog", "7": "a cat"}, content
    path.write_text("image_id\tcaption\n42\t<start> a dog <end>\n7\ta cat\n42\ta cow")
    given = {"keep_first": True, "strip_tokens": True}
    assert read_prediction_file(path, images_of("42", "7"), **given) == {"42": "a dog", "7": "a cat"}


COCO = {"images": [{"id": 5, "file_name": "b.jpg"}], "annotations": [{"id": 1, "image_id": 5, "caption": "a dog"}]}
NAMED = [
    (images_of("dog.jpg", "b.jpg"), "x/dog.jpg", "dog.jpg", "file name"),
    (images_of("x/dog.jpg", "y/dog.jpg"), "z/../x/dog.jpg", "x/dog.jpg", "full path"),
    (images_of("dog", "cat"), "x/dog.jpg", "dog", "file name without suffix"),
    (images_of("42", "7"), "COCO_val2014_000000000042.jpg", "42", "number at the end of the file name"),
    (ScoredImages({"9": ImageFacts()}, files={"9": "train/a.jpg"}), "/photos/a.jpg", "9", "file name"),
]


def test_photos_are_matched_by_the_most_specific_name(tmp_path, capsys):
    path = tmp_path / "captions.json"
    for images, photo, image, kind in NAMED:
        path.write_text(json.dumps({photo: "a dog"}))
        assert read_prediction_file(path, images) == {image: "a dog"}
        assert f"Photos of {path} are matched to images by {kind}: 1 of 1." in capsys.readouterr().err
    (tmp_path / "references.json").write_text(json.dumps(COCO))
    path.write_text('[{"image": "/photos/b.jpg", "caption": "a dog"}]')
    assert read_prediction_file(path, read_scored_images(tmp_path / "references.json", "test")) == {"5": "a dog"}


def test_one_kind_of_name_counts_for_all_photos_and_missing_captions_are_told(tmp_path, capsys):
    path = tmp_path / "captions.json"
    captions = [{"image": f"x/{name}.jpg", "caption": name} for name in ("a", "d", "c_7")]
    path.write_text(json.dumps([*captions, {"image": "b.jpg", "error": "b.jpg is broken."}]))
    matched = read_prediction_file(path, images_of("a.jpg", "d.jpg", "7"))
    assert matched == {"a.jpg": "a", "d.jpg": "d", "x/c_7.jpg": "c_7"}  # the last is of no image
    err = capsys.readouterr().err
    assert f"Photos of {path} are matched to images by file name: 2 of 3." in err
    assert f"{path} has no caption of 1 of 4 photos: b.jpg." in err


MISTAKES = [  # a file's name and content, and what the message says behind the folder
    ("a.json", '{"x.jpg": "a"}', "a.json has captions of x.jpg, and none of them is one of the images to score (1.jpg"),
    ("a.json", '{"a/1.jpg": "a", "b/1.jpg": "a"}', "has captions of more than one photo for image 1.jpg (a/1.jpg, b/1"),
    ("a.json", '[{"image": "1.jpg", "text": "a"}, {"image": "1.jpg", "text": "b"}]', "--keep-first scores the first"),
    ("a.json", '[{"image": 7.5, "text": "a"}]', "a.json: the caption is of image 7.5; an image id is a text or a whol"),
    ("a.json", '["a dog", "a cat"]', "a.json: entry 0 is 'a dog', which does not say of which image it is; give {id: "),
    ("a.json", '{"images": [], "annotations": [{"image_id": 1, "caption": "a"}]}', "a.json: these are COCO's captions"),
    ("a.json", '[{"image_id": "1.jpg", "score": 3}]', "a.json: entry 0 has no caption (caption, sentence, text, "),
    ("a.json", '[{"caption": "a"}]', "a.json: entry 0 has no image (image_id, "),
    ("a.json", '{"1.jpg": NaN}', "a.json: the caption of image 1.jpg is nan, not a text."),
    ("a.json", '{"1.jpg": "a dog", "2.j', "JSON: Unterminated string at line 1, column 20; it seems cut off, get it"),
    ("a.json", '{"1.jpg": "a"}\n{"2.jpg": "a"', "a.json, line 2, is not valid JSON: "),
    ("a.json", "[]", "a.json has no captions."),
    ("a.json", " \n", "a.json has no captions."),
    ("a.json", '[{"image": "1.jpg", "error": "broken"}]', "a.json has no captions."),
    ("a.csv", "image,words\n1.jpg,a\n", "a.csv is a table with the columns image, words, which lacks one for images or one for"),
    ("a.csv", 'image,caption\n1.jpg,"a', "a.csv cannot be read from line 2 on (unexpected end of data); a caption with quot"),
    ("a.csv", "image,caption\n1.jpg,caf\xe9\n", "a.csv is not in UTF-8: line 2 cannot be read; save it as CSV in UTF-"),
    ("none.csv", None, "There is no file "),
]  # fmt: skip


def test_a_file_that_cannot_be_read_or_matched_is_a_sentence(tmp_path):
    for name, content, sentence in MISTAKES:
        path = tmp_path / name
        if content is not None:
            path.write_text(content, encoding="latin-1")
        with pytest.raises(DataError) as caught:
            read_prediction_file(path, images_of("1.jpg", "2.jpg"))
        assert sentence in str(caught.value) and path.name in str(caught.value), content
