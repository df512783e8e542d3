"""Files of predictions in the forms that people have, matched to images by id or by the names of their photos."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.scores import ImageFacts, score
from showtell.scores.files import ScoredImages, read_prediction_file, read_scored_images
from tests.cli.test_caption import run
from tests.datasets.makers import write_coco


def images_of(*ids: str, **files: str) -> ScoredImages:
    return ScoredImages({image: ImageFacts(("a dog",)) for image in ids}, files=files)


def test_what_caption_writes_is_scored_like_what_evaluate_writes(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    results = tmp_path / "results.json"
    given = ["--metrics", "bleu,cider", "--json"]
    assert run(capsys, "evaluate", tiny_checkpoint, tiny_scenes, *given, "--out", results)[0] == 0
    expected = json.loads(run(capsys, "score", results, "--references", tiny_scenes, *given)[1])
    photos = [record.path for record in open_dataset(tiny_scenes)["test"]]
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
    ("csv", "sep=;\nimage;alt_text\n42.jpg;a dog\n7.jpg;a cat\n"),
    ("csv", "id,file_name,caption\n0,42.jpg,a dog\n1,7.jpg,a cat\n"),  # whose ids number the rows
    ("csv", "image,caption\nC:\\photos\\42.png,\"['a dog']\"\nphotos\\7,a cat\n"),
    ("txt", "42.jpg\ta dog\t83%\n7.jpg\ta cat\t12%, probably wrong\n"),
    ("json", '[{"image_id": "000000000042", "caption": [{"raw": "a dog"}]}, {"filename": "7.jpg", "raw": "a cat"}]'),
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


STEMS = st.lists(st.text("ab_-1", min_size=1, max_size=4), unique_by=str.casefold, min_size=2, max_size=5)


@given(
    stems=STEMS, ours=st.sampled_from(["", ".jpg", ".JPEG"]), theirs=st.sampled_from(["", ".jpg", ".png", "/x/{}.jpg"])
)
def test_names_with_and_without_suffix_and_folder_meet(stems, ours, theirs):
    """An image is found by its name in any of these forms, or by none: never one by the name of another."""
    form = theirs if "{}" in theirs else f"{{}}{theirs}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "captions.json")
        path.write_text(json.dumps({form.format(stem): f"of {stem}" for stem in stems}))
        matched = read_prediction_file(path, images_of(*(stem + ours for stem in stems)))
    assert matched == {stem + ours: f"of {stem}" for stem in stems}


@pytest.mark.parametrize("other", [".JPEG", ".png"])
def test_a_stem_that_two_images_have_names_neither(tmp_path, other):
    path = tmp_path / "captions.json"
    path.write_text(json.dumps({"1": "a", "b.jpg": "b"}))
    assert read_prediction_file(path, images_of("1.jpg", f"1{other}", "b.jpg")) == {"1": "a", "b.jpg": "b"}


GROUPED = [  # references as lists, a file's suffix and content, of {"0.jpg": ["a", "b"], "7": ["c"]}
    ("json", '[{"image_id": "0.jpg", "caption": ["a", "b"]}, {"image_id": 7, "caption": "c"}]'),
    ("json", '[{"image_id": "0.jpg", "caption": "a"}, {"image_id": 7, "text": "c"}, {"image": "0.jpg", "text": "b"}]'),
    ("json", '{"0.jpg": [{"caption": "a"}, {"caption": "b"}], "7": ["c"]}'),
    ("jsonl", '{"image": "0.jpg", "text": "a"}\n{"image": 7, "text": "c"}\n{"image": "0.jpg", "raw": "b"}'),
    ("csv", "image_id,caption\n0.jpg,a\n7,c\n0.jpg,b\n"),
    ("csv", "image_id,captions\n0.jpg,\"['a', 'b']\"\n7,c\n"),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "content"), GROUPED)
def test_references_as_a_list_are_grouped_by_image(capsys, tmp_path, suffix, content):
    references, predictions = tmp_path / f"references.{suffix}", tmp_path / "predictions.json"
    references.write_text(content)
    images = read_scored_images(references, "test")
    assert {image: facts.references for image, facts in images.facts.items()} == {"0.jpg": ("a", "b"), "7": ("c",)}
    predictions.write_text('{"0": "a", "7": "c"}')
    status, printed, _ = run(capsys, "score", predictions, "--references", references, "--metrics", "bleu", "--json")
    assert (status, round(json.loads(printed)["scores"]["bleu_1"], 6)) == (0, 1.0)


def test_references_with_drawn_splits_are_chosen_by_what_was_predicted(tmp_path, capsys):
    references = tmp_path / "references.csv"
    references.write_text("image,caption\n" + "".join(f"{n}.jpg,a dog {n}\n" for n in range(40)))
    drawn = read_scored_images(references, "test").drawn
    for predicted in (drawn, [f"{n}.jpg" for n in range(40)]):
        predictions = tmp_path / "predictions.json"
        predictions.write_text(json.dumps({image: f"a dog {image.partition('.')[0]}" for image in predicted}))
        status, printed, err = run(capsys, "score", predictions, "--references", references, "--metrics", "bleu")
        assert status == 0 and f"{len(predicted)} images" in printed
        assert ("has no splits, so all of its 40 images are scored" in err) == (len(predicted) == 40)


TEXT = st.sampled_from(["a dog runs", "a cat sits on a mat", "", " ", "two men"])
FLAGS = dict.fromkeys(("is_precanned", "is_rejected"), st.booleans())  # of VizWiz
ANNOTATION = st.fixed_dictionaries({"image_id": st.integers(1, 3), "caption": TEXT}, optional=FLAGS)


@given(annotations=st.lists(ANNOTATION, max_size=12))
def test_a_coco_file_and_its_folder_are_the_same_references(annotations):
    """Empty references count, as in coco-caption; what VizWiz marks does not, as in its evaluation."""
    annotations += [{"image_id": image, "caption": "a dog"} for image in (1, 2, 3)]
    kept = [one for one in annotations if not one.get("is_precanned") and not one.get("is_rejected")]
    by_image = {image: [one["caption"].strip() for one in kept if one["image_id"] == image] for image in (1, 2, 3)}
    expected = {str(image): sorted(texts) for image, texts in by_image.items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "annotations", "captions_test.json")
        images = [{"id": image, "file_name": f"{image}.jpg"} for image in (1, 2, 3)]
        write_coco(file, images, annotations, photos=None)
        for path in (file, Path(folder)):
            read = {image: facts.references for image, facts in read_scored_images(path, "test").facts.items()}
            assert {image: sorted(map(str.strip, texts)) for image, texts in read.items()} == expected


BAD = [("csv", "image,caption,split\n1.jpg,a man, a dog,test\n2.jpg,a,test\n"), ("jsonl", '{"image": "1", "text": 5}')]


@pytest.mark.parametrize(("form", "row"), BAD)
def test_references_with_problems_are_refused(tmp_path, form, row):
    (tmp_path / f"references.{form}").write_text(row)
    with pytest.raises(DataError, match="cannot be used"):
        read_scored_images(tmp_path / f"references.{form}", "test")


def test_a_text_that_is_no_caption_is_told_at_once():
    for predicted, reference in (("dog " * 2_000_000, "a dog"), ("a dog", "dog " * 2_000_000)):
        with pytest.raises(DataError, match="A text of image 1 has 8,000,000 characters; captions and references have"):
            score({"1": predicted}, {"1": [reference]})


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
    ("a.csv", "image,words\n1.jpg,a\n", "a.csv is a table with the columns image, words, which lacks"),
    ("a.csv", "image,caption\n1.jpg,a man, a dog and a cat\n2.jpg\n,a\n", "used: 2, 3, 4; each is like dog.jpg,"),
    ("a.csv", "image,caption,caption\n1.jpg,a,b\n", "a.csv: 1 image(s) are predicted more than once: 1.jpg;"),
    ("a.csv", "image,caption\n1.jpg,\"['a', 'b']\"\n", "a.csv: 1 image(s) are predicted more than once: 1.jpg;"),
    ("a.csv", f"image,caption,{'x' * 200_000}\n1.jpg,a,\n", "a.csv cannot be read from line 1 on (field larger than"),
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
