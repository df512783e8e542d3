"""Parity with the reference, hand-computed values, degenerate inputs, and the forms of input."""

import math
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import showtell
from showtell.errors import DataError
from showtell.scores import DocumentFrequency, ImageFacts
from tests.scores.conftest import Case

NAMES = {  # the reference's: ours
    "Bleu_1": "bleu_1", "Bleu_2": "bleu_2", "Bleu_3": "bleu_3", "Bleu_4": "bleu_4", "METEOR": "meteor",
    "ROUGE_L": "rouge_l", "CIDEr": "cider",
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.usefixtures("tokenized")
def test_scores_equal_the_reference(case: Case) -> None:
    given = case.tokenized["predictions"], case.tokenized["references"]
    report = showtell.score(*given, metrics=["bleu", "meteor", "rouge_l", "cider"])
    for theirs, ours in NAMES.items():
        assert report.scores[ours] == pytest.approx(case.oracle["corpus"][theirs], abs=1e-12), ours
        per_image = [report.per_image[image][ours] for image in case.oracle["ids"]]
        np.testing.assert_allclose(per_image, case.oracle["per_image"][theirs], rtol=0, atol=1e-12, err_msg=ours)


def test_bleu_by_hand() -> None:
    # "a b b" against "a b c" and "a b d e": lengths 3, 3; unigrams a 1, b min(2, 1) = 1 of 3; bigrams "a b" 1 of 2
    scores = showtell.score(["a b b"], [["a b c", "a b d e"]], metrics=["bleu"]).scores
    assert scores["bleu_1"] == pytest.approx(2 / 3, abs=1e-8)
    assert scores["bleu_2"] == pytest.approx(math.sqrt(2 / 3 * 1 / 2), abs=1e-8)
    # of two reference lengths as close the shorter counts: of 2 and 4 for length 3, where 4 would give exp(1 - 4/3)
    scores = showtell.score(["a b c"], [["a b c d", "a b"]], metrics=["bleu"]).scores
    assert scores["bleu_1"] == pytest.approx(1, abs=1e-8)


@given(st.lists(st.tuples(st.text("ab ", max_size=12), st.text("ab ", max_size=12)), min_size=1, max_size=4))
def test_bleu_is_bleu_without_penalty_times_the_penalty(texts: list[tuple[str, str]]) -> None:
    predictions, references = [text for text, _ in texts], [[other] for _, other in texts]
    report = showtell.score(predictions, references, metrics=["bleu", "bleu_no_bp"])
    length, longer = (sum(len(text.split()) for text in side) for side in zip(*texts, strict=True))
    penalty = math.exp(1 - longer / length) if 0 < length < longer else 1.0
    for n in range(1, 5):
        assert report.scores[f"bleu_{n}"] == pytest.approx(penalty * report.scores[f"bleu_no_bp_{n}"], abs=1e-8)


def test_rouge_by_hand() -> None:
    # "a c" of "a b c": precision 2/2, recall 2/3, F = (1 + 1.44) * 2/3 / (2/3 + 1.44)
    scores = showtell.score(["a c"], [["a b c"]], metrics=["rouge_l"]).scores
    assert scores["rouge_l"] == pytest.approx(2.44 * (2 / 3) / (2 / 3 + 1.44))


def test_cider_by_hand() -> None:
    # Two images. "dog" is in one reference set: weight log 2; "a" in both: weight 0. Prediction 1 "a dog"
    # against "a dog": unigrams and bigrams have cosine 1, no 3- or 4-grams: 10 * (1 + 1 + 0 + 0) / 4.
    # Prediction 2 shares only "a", which weighs nothing.
    report = showtell.score(["a dog", "a fish"], [["a dog"], ["a cat"]], metrics=["cider"])
    assert report.per_image["0"]["cider"] == pytest.approx(5.0)
    assert report.per_image["1"]["cider"] == 0.0
    assert report.scores["cider"] == pytest.approx(2.5)


def test_cider_d_punishes_a_difference_in_length() -> None:
    report = showtell.score(["dog dog", "cat"], [["dog"], ["cat"]], metrics=["cider"])
    # unigrams only: clipped min(2, 1) * 1 / (2 * 1) = 1/2, one bigram more: e^(-1/72)
    assert report.per_image["0"]["cider"] == pytest.approx(10 / 4 * 0.5 * math.exp(-1 / 72))


DEGENERATE = [  # BLEU-4, ROUGE-L and CIDEr-D, which is 0 for one image: every weight is log 1
    ("", "a dog", [0.0, 0.0, 0.0]),
    ("", "", [0.0, 1.0, 0.0]),
    ("a dog runs home", "a dog runs home", [0.9999999992, 1.0, 0.0]),
    ("xyzzy plugh", "a dog", [0.0, 0.0, 0.0]),
]


def test_degenerate_captions() -> None:
    for prediction, reference, expected in DEGENERATE:
        scores = showtell.score([prediction], [[reference]], metrics=["bleu", "rouge_l", "cider"]).scores
        assert [scores[name] for name in ("bleu_4", "rouge_l", "cider")] == pytest.approx(expected, abs=1e-9)


def test_document_frequency_from_elsewhere() -> None:
    frequency = DocumentFrequency({("dog",): 1, ("a",): 4}, images=4, source="toy")
    report = showtell.score(["a dog"], [["a dog"]], metrics=["cider"], document_frequency=frequency)
    # unigrams: "a" weighs log 4 - log 4 = 0, "dog" log 4; the bigram is in no document: log 4 - log 1
    assert report.scores["cider"] == pytest.approx(5.0)
    assert "df:toy:4" in report.signatures["cider"]


UNFITTING = [
    ({"1": "a"}, {"1": ["a"], "2": ["b"]}, "1 image(s) have no prediction: 2"),
    ({"1": "a", "2": "b"}, {"1": ["a"]}, "1 prediction(s) are for unknown images: 2"),
    ({"1": "a"}, {"1": []}, "1 image(s) have no reference: 1"),
    ([{"image_id": 1, "caption": "a"}] * 2, {"1": ["a"]}, "1 image(s) are predicted more than once: 1"),
    ({}, {}, "There are no predictions to score."),
    ({"1": None}, {"1": ["a"]}, "Predictions: the caption of image 1 is None, not a text."),
    ("a dog", {"1": ["a"]}, "Predictions: 'a dog' is not {id: text}, COCO results or a list of texts."),
    ({"1": "a"}, {"1": "a"}, "References: those of image 1 are 'a', not a list of texts."),
    ({"1": "a"}, {"1": [3]}, "References: a reference of image 1 is [3], not a text."),
    ({"1": "a"}, {"annotations": [{"image_id": 1}]}, "one lacks 'caption'"),
    (["a dog"], 3, "References: 3 is not {id: [texts]}, a COCO"),
    ({"1": "a", "2": "a"}, {"1": ImageFacts(), "2": ["a"]}, "References: those of image 1 are ImageFacts("),
]


def test_what_does_not_fit_together_is_named() -> None:
    for predictions, references, message in UNFITTING:
        with pytest.raises(DataError, match=re.escape(message)):
            showtell.score(predictions, references)  # type: ignore[arg-type]


SENSELESS = [
    "[1]", '{"document_frequency": {}}', '{"ref_len": Infinity, "document_frequency": {}}',
    '{"ref_len": 0, "document_frequency": {}}', '{"ref_len": 2, "document_frequency": [1]}',
    *(f'{{"ref_len": 2, "document_frequency": {{"a": {count}}}}}' for count in ("3", "NaN", "-1", "9" * 400)),
]  # fmt: skip


def test_a_file_of_document_frequencies_that_makes_no_sense(tmp_path: Path) -> None:
    for content in SENSELESS:
        (tmp_path / "df.json").write_text(content)
        with pytest.raises(DataError, match="holds no document frequencies: it should be"):
            DocumentFrequency.load(tmp_path / "df.json")


def test_few_images_behind_ciders_frequencies_are_warned_of() -> None:
    report = showtell.score(["a dog"], [["a dog"]], metrics=["cider"])
    assert report.warnings[0].startswith("CIDEr's document frequencies come from 1 images, too few")
    many = DocumentFrequency({}, images=100, source="toy")
    assert not showtell.score(["a dog"], [["a dog"]], metrics=["cider"], document_frequency=many).warnings
    assert not showtell.score(["a dog"], [["a dog"]], metrics=["bleu"]).warnings


TEXTS = st.lists(
    st.tuples(st.text(max_size=20), st.lists(st.text(max_size=20), min_size=1, max_size=3)), min_size=1, max_size=5
)


@given(TEXTS)
def test_no_text_raises_and_scores_stay_in_range(texts: list[tuple[str, list[str]]]) -> None:
    metrics = ["bleu", "rouge_l", "cider", *(["meteor"] if find_spec("pycocoevalcap") else [])]
    report = showtell.score([text for text, _ in texts], [references for _, references in texts], metrics)
    for values in [report.scores, *report.per_image.values()]:
        for name, value in values.items():
            assert 0 <= value <= (10.0 + 1e-9 if name.startswith("cider") else 1.0 + 1e-9), name


WORDS = st.lists(st.sampled_from(["a", "dog", "cat", "runs", "the"]), max_size=6).map(" ".join)


@given(
    st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=2, max_size=5),
    st.randoms(use_true_random=False),
)
def test_the_order_of_images_and_references_changes_nothing(texts, rng):
    def scores(order: list[int]) -> dict[str, float | None]:
        references = {str(image): rng.sample(texts[image][1], len(texts[image][1])) for image in order}
        predictions = {str(image): texts[image][0] for image in reversed(order)}
        return showtell.score(predictions, references, metrics=["bleu", "rouge_l", "cider"]).scores

    order = list(range(len(texts)))
    shuffled = rng.sample(order, len(order))
    assert scores(order) == pytest.approx(scores(shuffled), abs=1e-12)


def test_ngram_scores_reach_nothing_heavy() -> None:
    """A script that only wants CIDEr waits for numpy and pydantic, not for torch, photos or datasets."""
    code = "import sys, showtell.scores.cider; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("torch", "torchvision", "transformers", "PIL", "scipy", "rich", "typer", "lmdb", "yaml", "filelock")
    heavy += ("showtell.datasets", "showtell.images", "showtell.scenes", "showtell.features", "showtell.hub")
    assert not set(heavy) & set(modules)
    assert sum(module.startswith("showtell") for module in modules) <= 45
