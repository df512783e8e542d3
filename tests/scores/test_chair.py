"""CHAIR, counted by hand."""

from __future__ import annotations

import pytest

import showtell
from showtell.scores import ImageFacts
from showtell.scores.chair import Mention, mentioned, mentions, phrases_of


def test_chair_by_hand() -> None:
    objects = {"1": ["dog", "person"], "2": ["hot dog"], "3": []}
    captions = {"1": "a woman with two dogs and a cat", "2": "a hot dog on a table", "3": "a field"}
    references = {"1": ["a lady and her puppies"], "2": ["food on a table"], "3": ["grass"]}
    # "cat" and "table" are no category here, "cat" is not annotated anywhere; add one image that has a cat
    objects["4"], captions["4"], references["4"] = ["cat", "dining table"], "a dog and a dog", ["a cat"]
    facts = {image: ImageFacts(tuple(references[image]), frozenset(objects[image])) for image in captions}
    report = showtell.score(captions, facts, metrics=["chair"])
    # 1: woman, dogs, cat: the cat is not there. 2: hot dog, table: a reference names the table. 4: two dogs, not there.
    assert report.scores["chair_i"] == pytest.approx(3 / 7)
    assert report.scores["chair_s"] == pytest.approx(2 / 4)
    assert report.per_image["2"] == {"chair_i": 0.0, "chair_s": 0.0}
    assert "categories:5" in report.signatures["chair_i"]


def test_the_longest_name_counts() -> None:
    names = phrases_of({"dog", "hot dog", "person", "knife", "bus"})
    words = "a man eats hot dogs with knives in buses"
    assert mentioned(words.split(), names) == ["person", "hot dog", "knife", "bus"]
    assert mentions(words.split(), names)[1:3] == [Mention(3, 5, "hot dog"), Mention(6, 7, "knife")]
    assert mentions(["a", "dog"], names) == [Mention(1, 2, "dog")]


def test_without_objects_chair_does_not_run_and_says_why() -> None:
    facts = {"a": ImageFacts(("a",), frozenset({"dog"})), "b": ImageFacts(("a",))}
    report = showtell.score({"a": "a", "b": "b"}, facts, metrics=["chair", "rouge_l"])
    assert report.skipped["chair_i"] == (
        '"chair" needs annotated objects; score against a dataset with boxes (1 of 2 image(s) lack them: b).'
    )
    assert report.scores["rouge_l"] == 0.5
