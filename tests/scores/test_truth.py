"""Truth as a score: the same numbers as the scenes' own summary, and a part of the report like any other."""

from __future__ import annotations

import pytest

import showtell
from showtell.scenes import Item, Scene
from showtell.scenes.truth import statistics, summarise
from showtell.scores import ImageFacts

SCENE = Scene(
    background="white",
    items=(Item("circle", "red", "small", "plain", 25, 50, 16), Item("square", "blue", "large", "plain", 70, 50, 30)),
)


def test_the_numbers_are_those_of_the_scenes_own_summary() -> None:
    texts = {"1": "a red circle", "2": "a circle left of a square", "3": "colourless green ideas", "4": ""}
    report = showtell.score(texts, dict.fromkeys(texts, ImageFacts(("a circle",), scene=SCENE)))
    expected = summarise([statistics(text, SCENE) for text in texts.values()])
    assert {name: report.scores[name] for name in expected} == pytest.approx(expected)
    for image, text in texts.items():
        alone = summarise([statistics(text, SCENE)])
        assert {name: report.per_image[image][name] for name in alone} == alone
    assert report.signatures["truth"].startswith("scenes-language:")
