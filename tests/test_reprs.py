"""What people hold in their hands prints as a line that says what it is; tables where a table says more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from showtell import Captioner, ScoreReport, TrainingResult, open_dataset, score
from showtell.captions import Attention, Caption, Word
from showtell.confidence.calibration import Calibration
from showtell.datasets import CaptionDataset
from showtell.evaluation import Evaluation
from showtell.types import EnsembleFeatures, Features, Regions, Terms

CAPTION = Caption("a red dog", -1.25, True, (Word("a", -0.051), Word("red", -1.0), Word("dog", -0.1)))


def test_a_caption_is_its_text():
    assert str(CAPTION) == f"{CAPTION}" == "a red dog"
    assert repr([CAPTION]) == "[Caption(text='a red dog', logprob=-1.25, confidence=0.73)]"
    assert repr(replace(CAPTION, finished=False)).endswith("confidence=0.66, finished=False)")
    assert repr(CAPTION.words[0]) == "Word(word='a', logprob=-0.051)"
    assert repr(Attention(torch.rand(3, 36), None)) == "Attention(3 words over 36 regions)"


def test_a_captioner_says_what_it_is_made_of(tiny_checkpoint: Path):
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    weights = sum(weight.numel() for part in (captioner.encoder, captioner.decoder) for weight in part.parameters())
    words = len(captioner.vocabulary) - 4
    sizes = f"vocabulary={words} words, weights={weights:,}, device=cpu)"
    assert repr(captioner) == f"Captioner(model=sat, encoder=small_cnn, {sizes}"
    both = Captioner.ensemble([tiny_checkpoint, tiny_checkpoint], device="cpu")
    assert repr(both).startswith(
        f"Captioner(model=ensemble of sat, sat, encoder=ensemble of small_cnn, small_cnn, vocabulary={words} words, "
    )


def report() -> ScoreReport:
    references = {"1": ["a red dog", "the dog is red"], "2": ["a cat sleeps"]}
    return score({"1": "a red dog", "2": "a dog"}, references, metrics=["bleu", "rouge_l"])


def test_a_report_is_a_table():
    lines = str(report()).splitlines()
    assert lines[0] == "2 images"
    assert [line.split()[0] for line in lines[2:7]] == ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l"]
    assert lines[2].split() == ["bleu_1", f"{report().scores['bleu_1']:.4f}"]
    assert "signatures" in lines
    numbers = ", ".join(f"{name} {value:.4f}" for name, value in report().scores.items())
    assert repr(report()) == f"<ScoreReport of 2 images: {numbers}>"
    nothing = score({"1": "a dog"}, {"1": ["a dog"]}, metrics=["truth"])
    assert repr(nothing) == "<ScoreReport of 1 images: no scores; skipped " + ", ".join(nothing.scores) + ">"
    assert repr(Evaluation({"1": CAPTION}, report())) == f"<Evaluation of 1 images: {report()!r}>"


def test_a_dataset_counts_what_it_has(tiny_scenes: Path):
    dataset = open_dataset(tiny_scenes)
    splits = ", ".join(f"{name} {count}" for name, count in dataset.splits.items())
    captions = sum(len(record.captions) for record in dataset.records)
    assert repr(dataset) == f"<CaptionDataset {tiny_scenes} (coco): 60 images, {captions} captions; {splits}>"
    empty = CaptionDataset(Path("x"), "table", (), problems=("Something is wrong.",))
    assert repr(empty) == "<CaptionDataset x (table): 0 images, 0 captions; no splits, 1 problems>"


def test_an_explanation_lists_words_with_their_alternatives(tiny_checkpoint: Path, tiny_scenes: Path):
    photo = min((tiny_scenes / "images").iterdir())
    explanation = Captioner.from_pretrained(tiny_checkpoint, device="cpu").explain(photo, max_length=3)
    (by,) = explanation.models
    assert repr(explanation) == f"<Explanation of {photo}: sat {by.caption.text!r}>"
    first, blank, title, *words = str(explanation).splitlines()
    assert (first, blank, title) == (str(photo), "", f"sat: {by.caption.text}")
    assert len(words) == len(by.caption.words)
    word = by.caption.words[0]
    others = ", ".join(f"{other or '(end)'} {share:.2f}" for other, share in word.others[:3])
    assert words[0].split(maxsplit=3) == [word.word, f"{word.probability:.2f}", "not", others]


def test_a_calibration_says_what_it_was_fitted_on():
    captions = [
        replace(CAPTION, logprob=-index / 10, words=tuple(Word(word, -index / 30) for word in "abc"))
        for index in range(40)
    ]
    fitted = Calibration.fit(captions, [index % 3 != 0 or index < 10 for index in range(40)], "all of it is true")
    errors = [one.expected_calibration_error for one in (fitted.reliability, fitted.before)]
    assert repr(fitted) == (
        f"<Calibration on 40 captions, good: all of it is true; error {errors[0]:.3f}, before {errors[1]:.3f}>"
    )
    assert repr(fitted.reliability).startswith(f"<Reliability: calibration error {errors[0]:.3f}, Brier score 0.")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            TrainingResult(Path("runs/a"), 10, 1.4123, 8),
            "<TrainingResult runs/a: 10 epochs, best cider 1.412 at epoch 8>",
        ),
        (TrainingResult(Path("runs/a"), 2, None, None, True), "<TrainingResult runs/a: 2 epochs, interrupted>"),
    ],
)
def test_the_result_of_a_run(result: TrainingResult, text: str):
    assert repr(result) == text


def test_records_of_tensors_give_shapes():
    features = Features(torch.rand(2, 36, 8), torch.ones(2, 36, dtype=torch.bool), Regions(torch.rand(2, 36, 4)))
    shapes = "vectors=float32 (2, 36, 8), is_region=bool (2, 36)"
    regions = "regions=Regions(boxes=float32 (2, 36, 4), scores=None, labels=None, windows=None, attributes=None)"
    assert repr(features) == f"Features({shapes}, {regions})"
    one = Features(features.vectors, features.is_region)
    both = EnsembleFeatures.of([one, one])
    assert repr(both) == f"EnsembleFeatures({shapes}, regions=None, others=(Features({shapes}, regions=None)))"
    assert repr(Terms(torch.tensor(1.5), {"words": torch.tensor(0.25)})) == "Terms(total=1.5, parts={words: 0.25})"
