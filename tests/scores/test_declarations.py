"""A score is declared once: what it needs, where its numbers are used, and what the documentation says of it."""

from pathlib import Path

import numpy as np
import pytest

import showtell
from showtell import scores
from showtell.datasets import open_dataset
from showtell.errors import RecipeError
from showtell.objectives.self_critical import RewardConfig
from showtell.scores import SCORES, Corpus, DocumentFrequency, ImageFacts, Score, ScoreNumber, available_metrics
from showtell.scores.base import Floats
from showtell.training import make_recipe


class Brevity(Score):
    """A toy: the share of captions with at most five words. Statistics: whether each has."""

    numbers = (ScoreNumber("brevity", "Brevity", can_select=True, explanation_rank=0),)
    summary = "share of captions with at most five words"
    needs = ("images",)

    def statistics(self, corpus: Corpus) -> Floats:
        return np.array([[float(len(words) <= 5)] for words in corpus.predicted_words])

    def from_sums(self, sums: Floats, images: int) -> Floats:
        return sums / images

    def signature(self, corpus: Corpus) -> str:
        return "toy:1"


def test_metrics_run_where_their_needs_are_met() -> None:
    facts = ImageFacts(("a dog",))
    ours = ("bleu", "meteor", "rouge_l", "cider", "spice", "truth", "chair")
    assert available_metrics(ours, [facts]) == ours[:5]
    assert set(available_metrics(SCORES, [facts])) >= set(ours[:5])
    assert not set(available_metrics(SCORES, [facts])) & set(ours[5:])
    annotated = ImageFacts(("a dog",), objects=frozenset())
    assert available_metrics(["chair", "bleu"], [annotated, annotated]) == ("bleu", "chair")
    assert available_metrics(["chair", "bleu"], [annotated, facts]) == ("bleu",)
    few, enough = (DocumentFrequency({}, images, "toy") for images in (99, 100))
    assert available_metrics(["cider", "bleu"], [facts], few) == ("bleu",)
    assert available_metrics(["cider", "bleu"], [facts], enough) == ("bleu", "cider")


def test_a_new_score_is_a_metric_of_everything_it_declares(monkeypatch: pytest.MonkeyPatch, tiny_scenes: Path) -> None:
    monkeypatch.setitem(SCORES.builtin, "brevity", Brevity)
    dataset = open_dataset(tiny_scenes)
    records = dataset["val"]
    texts = {record.image_id: "a b c d e" if index else "a b c d e f" for index, record in enumerate(records)}
    report = showtell.score(texts, scores.image_facts(records), metrics=["brevity"])
    assert report.scores == {"brevity": (len(records) - 1) / len(records)}
    assert report.per_image[records[0].image_id] == {"brevity": 0.0}
    assert "brevity" not in showtell.score(["a"], [["a"]]).scores  # without the images that it needs
    assert set(scores.reward_numbers()) <= RewardConfig.model_fields.keys()
    assert "brevity" in showtell.score(texts, scores.image_facts(records)).scores
    assert scores.explained_numbers()[0] == "brevity"
    assert scores.selection_metrics()[-1] == "brevity"


def test_a_number_that_cannot_select_is_refused(tiny_recipe: dict) -> None:
    for name in ("bleu_1", "truth", "loss", "brevity"):
        tiny_recipe["training"]["selection_metric"] = name
        sentence = rf'training\.selection_metric.*"{name}" cannot select: .*Known: bleu_4, cider'
        with pytest.raises(RecipeError, match=sentence):
            make_recipe(tiny_recipe)
    with pytest.raises(ValueError, match="errors cannot select weights, of which the highest score wins; negate it"):
        ScoreNumber("errors", "Errors", lower_is_better=True, can_select=True)
