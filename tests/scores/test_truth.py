"""Truth as a score: means of what the scenes' own judge says; and what a dataset knows of its images."""

from pathlib import Path
from statistics import fmean

import pytest

import showtell
from showtell.datasets import open_dataset
from showtell.scenes import Item, Scene
from showtell.scenes.truth import judge
from showtell.scenes.world import SHAPES
from showtell.scores import ImageFacts, image_facts

CIRCLE, SQUARE = (
    Item("circle", "red", "small", "plain", 25, 50, 16),
    Item("square", "blue", "large", "plain", 70, 50, 30),
)
SCENE = Scene("white", (CIRCLE, SQUARE))


def means(*captions: str) -> dict[str, float | None]:
    """The numbers of captions of the scene, as their names say."""
    truths = [judge(caption, SCENE) for caption in captions]
    statements = [statement for truth in truths for statement in truth.statements]
    relations = [statement.holds for statement in statements if statement.kind == "relation"]
    return {
        "truth": fmean(truth.share for truth in truths),
        "truth_statements": len(statements) / len(captions),
        "truth_whole": fmean(truth.whole for truth in truths),
        "truth_relations": fmean(relations) if relations else None,
    }


def test_the_numbers_are_means_over_captions_and_relations() -> None:
    texts = {"1": "a red circle", "2": "a circle left of a square", "3": "colourless green ideas", "4": ""}
    report = showtell.score(texts, dict.fromkeys(texts, ImageFacts(("a circle",), scene=SCENE)))
    expected = means(*texts.values())
    assert {name: report.scores[name] for name in expected} == pytest.approx(expected)
    for image, text in texts.items():
        alone = means(text)
        assert {name: report.per_image[image][name] for name in alone} == alone
    assert report.signatures["truth"].startswith("scenes-language:")


def test_a_dataset_with_boxes_has_their_categories(tiny_boxes: Path) -> None:
    dataset = open_dataset(tiny_boxes)
    facts = image_facts(dataset)
    for record in dataset.records:
        assert record.boxes and facts[record.image_id].scene is None
        assert facts[record.image_id].objects == {box.category for box in record.boxes}
    assert {category for one in facts.values() for category in one.objects or ()} == set(SHAPES)
