"""The gate of each word: values that are known, the end included, padding left out."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch

from gate_by_word import gates, tables
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.text.tokenizer import tokenize


def test_each_occurrence_has_the_gate_of_the_step_that_scores_it(tiny_checkpoint: Path, tiny_scenes: Path):
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    records = open_dataset(tiny_scenes).limited(5, 2).split("test")
    with torch.no_grad():
        captioner.decoder.beta.weight.zero_()
        captioner.decoder.beta.bias.fill_(math.log(0.25 / 0.75))
    by_word = gates(captioner, records, batch_size=2)
    words = Counter(word for record in records for caption in record.captions for word in tokenize(caption))
    known = {word: count for word, count in words.items() if word in captioner.vocabulary.words}
    assert {word: len(by_word[word]) for word in known} == known
    assert len(by_word["<end>"]) == sum(len(record.captions) for record in records)
    assert all(value == pytest.approx(0.25) for values in by_word.values() for value in values)


def test_a_model_without_gate_is_refused(tiny_checkpoint: Path, tiny_scenes: Path):
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    captioner.decoder.beta = None
    with pytest.raises(DataError, match=r"The gate beta is that of the model sat with gate: true"):
        gates(captioner, open_dataset(tiny_scenes).limited(1, 1).split("test"))


def test_words_stand_by_their_gate_and_apart_where_seeds_disagree():
    words = {
        "<end>": {"count": 60, "mean": 0.31, "spread": 0.02},
        "red": {"count": 70, "mean": 0.58, "spread": 0.05},
        "blue": {"count": 80, "mean": 0.55, "spread": None},
        "there": {"count": 90, "mean": 0.56, "spread": 0.25},
        "lilac": {"count": 9, "mean": 0.9, "spread": 0.0},
    }
    table = tables([{"name": "sat_soft", "words": words}], least=50)
    assert table.splitlines()[2:] == [
        "| 0.5 to 0.6 | red, blue |",
        "| 0.3 to 0.4 | (end) |",
        "| seeds disagree | there |",
    ]
