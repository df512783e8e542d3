"""What people hold in their hands prints as a line that says what it is; tables where a table says more."""

from dataclasses import replace
from pathlib import Path

import torch

from showtell import ScoreReport, TrainingResult, score
from showtell.captions import Attention, Caption, Word
from showtell.evaluation import Evaluation

CAPTION = Caption("a red dog", -1.25, True, (Word("a", -0.051), Word("red", -1.0), Word("dog", -0.1)))


def test_a_caption_is_its_text_and_a_run_its_result():
    result = TrainingResult(Path("runs/a"), 10, 1.4123, 8)
    assert repr(result) == "<TrainingResult runs/a: 10 epochs, best cider 1.412 at epoch 8>"
    assert str(CAPTION) == f"{CAPTION}" == "a red dog"
    assert repr([CAPTION]) == "[Caption(text='a red dog', logprob=-1.25, confidence=0.73)]"
    assert repr(replace(CAPTION, finished=False)).endswith("confidence=0.66, finished=False)")
    assert repr(Attention(torch.rand(3, 36), None)) == "Attention(3 words over 36 regions)"


def report() -> ScoreReport:
    references = {"1": ["a red dog", "the dog is red"], "2": ["a cat sleeps"]}
    return score({"1": "a red dog", "2": "a dog"}, references, metrics=["bleu", "rouge_l"])


def test_a_report_is_a_table():
    lines = str(report()).splitlines()
    assert lines[0] == "2 images"
    assert [line.split()[0] for line in lines[4:9]] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L"]
    low, high = vars(report().intervals()["bleu_1"]).values()
    assert lines[4].split(maxsplit=2) == ["BLEU-1", f"{report().scores['bleu_1']:.4f}", f"[{low:.4f}, {high:.4f}]"]
    assert any(line.startswith("signature") for line in lines)
    numbers = ", ".join(f"{name} {value:.4f}" for name, value in report().scores.items())
    assert repr(report()) == f"<ScoreReport of 2 images: {numbers}>"
    nothing = score({"1": "a dog"}, {"1": ["a dog"]}, metrics=["truth"])
    assert repr(nothing) == "<ScoreReport of 1 images: no scores; skipped " + ", ".join(nothing.scores) + ">"
    assert repr(Evaluation(**vars(report()), captions={})) == f"<Evaluation of 2 images: {numbers}>"
