"""Which photos are explained, and how explanations stand up to what people say of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from showtell.errors import DataError, ImageError
from showtell.explanations.explanation import ExplainedBy, ExplainedCaption, ExplainedWord, Explanation
from showtell.grounding.subjects import Subject, Subjects, find_subjects, judge, with_references


def explanation(image: str, *texts: str) -> Explanation:
    """One model's caption for each text."""
    by = []
    for text in texts:
        words = tuple(ExplainedWord(word, 0.5, ()) for word in [*text.split(), ""])
        caption = ExplainedCaption(text, words, -1.0, True, 0.5)
        by.append(ExplainedBy(f"model {len(by)}", (caption,), torch.zeros(1, 4)))
    return Explanation(image, (8, 8), Image.new("RGB", (8, 8)), tuple(by))


def test_the_worst_caption_of_the_first_model_comes_first_and_what_is_unknown_last():
    photos = [
        Subject(Path("good.jpg"), ("a dog runs on the grass",)),
        Subject(Path("unknown.jpg")),
        Subject(Path("bad.jpg"), ("a red bus in a street",)),
    ]
    given = [
        explanation("good.jpg", "a dog runs on the grass", "a cat"),
        explanation("unknown.jpg", "a dog", "a dog"),
        explanation("bad.jpg", "two cats", "a red bus in a street"),
    ]
    judged = judge(given, Subjects(tuple(photos)))
    assert [one.image for one in judged] == ["bad.jpg", "good.jpg", "unknown.jpg"]
    bad, good, unknown = judged
    assert good.by[0].scores["rouge_l"] == bad.by[1].scores["rouge_l"] == 1
    assert bad.by[0].scores["rouge_l"] == 0
    assert unknown.by[0].scores == unknown.by[1].scores == {}
    assert good.references == ("a dog runs on the grass",)


def test_words_are_marked_that_name_what_is_neither_annotated_nor_said_by_people():
    known = Subjects(
        (
            Subject(Path("a.jpg"), ("a man with a dog",), frozenset({"person", "hot dog"})),
            Subject(Path("b.jpg"), ("a street",), None),
        ),
        categories=frozenset({"person", "hot dog", "dog", "cat", "fire hydrant"}),
    )
    given = [explanation(image, "a woman a dog two cats and a fire hydrant") for image in ("a.jpg", "b.jpg")]
    marked = {one.image: [(word.word, word.absent) for word in one.by[0].caption.words] for one in judge(given, known)}
    assert [pair for pair in marked["a.jpg"] if pair[1]] == [
        ("cats", "cat"), ("fire", "fire hydrant"), ("hydrant", "fire hydrant")
    ]  # fmt: skip
    assert not [pair for pair in marked["b.jpg"] if pair[1]]  # where nobody looked, nothing is said


def test_nothing_known_leaves_explanations_as_they_are():
    given = [explanation("b.jpg", "a dog"), explanation("a.jpg", "a cat")]
    assert judge(given, Subjects((Subject(Path("b.jpg")), Subject(Path("a.jpg"))))) == given
    assert judge([], Subjects(())) == []


def test_a_photo_named_twice_is_explained_once(tiny_scenes):
    photos = sorted((tiny_scenes / "images").iterdir())
    found = find_subjects([str(photos[3]), str(tiny_scenes / "images"), str(photos[0])], "test")
    assert [subject.path for subject in found.photos] == [photos[3], *photos[:3], *photos[4:]]


def test_a_limited_dataset_still_knows_all_references(tiny_scenes):
    everything = find_subjects([str(tiny_scenes)], "train")
    some = find_subjects([str(tiny_scenes)], "train", limit=3)
    assert len(some.photos) == 3
    assert some.left_out == len(everything.photos) - 3
    assert {subject.path for subject in some.photos} <= {subject.path for subject in everything.photos}
    assert some.references == everything.references
    assert all(subject.scene is not None and subject.objects is None for subject in some.photos)
    assert all(subject.boxes.shape[1] == 4 and len(subject.boxes) for subject in some.photos)


@pytest.mark.parametrize(
    ("key", "photo"),
    [
        ("a/b/COCO_val2014_000000000042.jpg", "a/b/COCO_val2014_000000000042.jpg"),
        ("42", "a/b/COCO_val2014_000000000042.jpg"),
        ("000000000042", "b/000000000042.jpg"),
        ("cat.jpg", "elsewhere/cat.jpg"),
        ("cat", "elsewhere/cat.png"),
    ],
)
def test_json_may_name_a_photo_in_several_ways(tmp_path, key, photo):
    (tmp_path / "known.json").write_text(json.dumps({key: ["a cat"], "none": ["a dog"]}))
    subjects = with_references(Subjects((Subject(Path(photo)), Subject(Path("other.jpg")))), tmp_path / "known.json")
    assert [subject.references for subject in subjects.photos] == [("a cat",), ()]
    assert subjects.references == (("a cat",), ("a dog",))


def test_references_from_elsewhere_keep_what_the_dataset_knows(tmp_path):
    known = Subject(Path("cat.jpg"), ("old",), frozenset({"cat"}), boxes=torch.zeros(1, 4))
    (tmp_path / "known.json").write_text('{"cat": ["new"]}')
    (found,) = with_references(Subjects((known,)), tmp_path / "known.json").photos
    assert (found.references, found.objects) == (("new",), frozenset({"cat"}))
    assert found.boxes is known.boxes


def test_what_cannot_be_used_is_a_sentence(tmp_path, tiny_scenes):
    with pytest.raises(DataError, match='has no split "tst"'):
        find_subjects([str(tiny_scenes)], "tst")
    with pytest.raises(ImageError, match="holds no image"):
        (tmp_path / "empty").mkdir()
        find_subjects([str(tmp_path / "empty")], "test")
    with pytest.raises(DataError, match="There is no file"):
        with_references(Subjects((Subject(Path("cat.jpg")),)), tmp_path / "none.json")
