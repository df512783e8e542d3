"""Supervised attention: its sums by hand, what it teaches, and which models and datasets it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from showtell.decoding import teacher_forced
from showtell.errors import DataError
from showtell.models import MODELS, Capability, Decoder
from showtell.objectives.attention_supervision import AttentionSupervisionConfig, attention_loss
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.testing import VOCABULARY
from showtell.training import train
from showtell.types import Batch, Features, Mentions
from tests.models.test_zoo import make
from tests.objectives import test_cross_entropy

SUPERVISED = CrossEntropyConfig(attention_supervision=AttentionSupervisionConfig(weight=2.0))
ATTENDING = sorted(name for name, (config, _) in MODELS.items() if Capability.ATTENTION in config().capabilities)


def mentions(indices: list[list[list[int]]], targets: list[list[list[float]]]) -> Mentions:
    """Mentions whose regions are known: (B, N, T) and (B, M, R)."""
    shares = torch.tensor(targets)
    return Mentions(
        torch.tensor(indices), torch.zeros(*shares.shape[:2], 1, 4), torch.zeros(len(shares), 4), targets=shares
    )


def test_words_that_name_nothing_or_nothing_that_is_seen_have_no_term_and_no_gradient():
    attention = torch.full((1, 1, 2, 3), 1 / 3, requires_grad=True)
    total = attention_loss(attention, mentions([[[-1, 0]]], [[[0.0, 0.0, 0.0]]]))
    total.backward()
    assert float(total.detach()) == 0
    assert attention.grad is not None and float(attention.grad.abs().sum()) == 0


def example(name: str) -> tuple[Batch, Features, Decoder]:
    batch, features, _ = test_cross_entropy.example()
    named = mentions(
        [[[-1, 0, -1, -1], [1, -1, -1, -1]], [[0, 0, -1, -1], [-1, -1, -1, -1]]],
        [[[1.0, 0.5, 0.0], [0.0, 0.0, 0.3]], [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]],
    )
    return replace(batch, mentions=named), features, make(name).eval()


@pytest.mark.parametrize("name", ATTENDING)
def test_the_total_is_the_likelihood_and_the_weighted_loss_of_the_named_words_over_all_words(name):
    """With the attention of every stage."""
    batch, features, decoder = example(name)
    terms = CrossEntropy(SUPERVISED, feature_size=6, vocabulary_size=VOCABULARY)(batch, features, decoder)
    outputs, expected = teacher_forced(decoder, features, batch.inputs).outputs, 0.0
    stages = [stage.attention for stage in outputs.stages or (outputs,) if stage.attention is not None]
    assert len(stages) == max(1, decoder.stages - 1)
    for log_alpha in (alpha.detach().log() for alpha in stages):
        looks = (2 * log_alpha[0, 0, 1, 0] + log_alpha[0, 0, 1, 1]) / 3 + log_alpha[0, 1, 0, 2]
        expected -= float(looks + log_alpha[1, 0, :2, 1].sum()) / 9  # nine words, ends included
    assert float(terms.parts["attention_supervision"]) == pytest.approx(expected, rel=1e-5)
    plain = CrossEntropy(CrossEntropyConfig(), feature_size=6, vocabulary_size=VOCABULARY)(batch, features, decoder)
    assert "attention_supervision" not in plain.parts
    assert float(terms.total.detach()) == pytest.approx(float(plain.total.detach()) + 2 * expected, rel=1e-5)


def test_a_dataset_without_boxes_is_refused(tiny_recipe, tiny_boxes: Path, tmp_path):
    for file in (tiny_boxes / "annotations").glob("instances_*.json"):
        file.unlink()
    for file in (tiny_boxes / "annotations").glob("captions_*.json"):
        file.write_text(file.read_text().replace('"grounding"', '"other"'))
    tiny_recipe["data"]["path"] = str(tiny_boxes)
    tiny_recipe["objective"] = {"name": "cross_entropy", "attention_supervision": {"weight": 1}}
    with pytest.raises(DataError, match=r"^objective.attention_supervision needs the boxes of objects, .*weight=0\.$"):
        train(tiny_recipe, tmp_path / "run", quiet=True)
