"""The coarse-to-fine gradient: by hand, against enumeration of all captions, and over parts of a batch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from showtell import counter_rng
from showtell.decoding import StageView
from showtell.decoding.policy import rollouts
from showtell.objectives.coarse_to_fine import CoarseToFine, CoarseToFineConfig
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from tests.decoding.test_policy import sight
from tests.decoding.test_stages import several
from tests.objectives import test_self_critical as self_critical
from tests.objectives.test_self_critical import LENGTH, REFERENCES, batch, gradient, names
from tests.toys import SMALL, random_decoder


def objective(**settings: object) -> Any:
    """Ready for one image."""
    made = CoarseToFine(CoarseToFineConfig.model_validate(settings), feature_size=2, vocabulary_size=6)
    made.prepare(dict.fromkeys(names(1), REFERENCES) | {"other": [[1, 3, 3, 2]]}, LENGTH)
    return made


@pytest.mark.parametrize(
    ("sampling", "baseline", "first", "second"),
    [("multinomial", "greedy", 1, 1), ("multinomial", "greedy", 0.5, 2), ("beam", "mean", 1, 1)],
)
def test_the_gradient_of_the_scores_by_hand(sampling, baseline, first, second):
    """D_i (p_i - onehot(ws_i)) / 3 for three captions of each of three stages, none for stage 0 (eq. 14, 15)."""
    decoder, features = several(images=1, steps=3, size=6, seeds=(8, 9, 10))
    samples = [self_critical.captions_of_plain_beam(table, 1, 3) for table in decoder.tables]
    if sampling == "multinomial":
        with counter_rng.use(counter_rng.CounterRNG(0, 0, names(1))), torch.no_grad():
            samples = [rollouts(StageView(decoder, stage), features, LENGTH, 3).samples for stage in range(3)]
    tables = [table.table.requires_grad_() for table in decoder.tables]
    rewards = torch.tensor([[0.2, 0.5, 0.9, 0.4], [0.6, 0.1, 0.8, 0.3], [1.0, 0.7, 0.0, 0.5]])  # the last is greedy
    held_against = [[], [0.3] * 3, [0.5] * 3] if baseline == "greedy" else [[], [0.5] * 3, [1.7 / 3] * 3]
    loss = objective(
        samples=3, sampling=sampling, baseline=baseline, baseline_weight=first, previous_stage_weight=second
    )
    told = iter(rewards)
    loss.reward = lambda words, is_word, image_ids: next(told).unsqueeze(0)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, names(1))):
        terms = loss(batch(1), features, decoder)
    gradients = torch.autograd.grad(terms.total, tables, allow_unused=True)
    assert gradients[0] is None
    for stage in (1, 2):
        own, before = rewards[stage, :3], rewards[stage - 1, :3]
        advantage = first * (own - torch.tensor(held_against[stage])) + second * (own - before)
        expected = self_critical.gradient_of_scores(tables[stage].detach(), samples[stage], advantage.unsqueeze(0))
        torch.testing.assert_close(gradients[stage], expected)
    assert float(terms.total.detach()) == pytest.approx(-(0.6 + 0.1 + 0.8) / 3 - (1.0 + 0.7 + 0.0) / 3)
    parts = {name: float(value) for name, value in terms.parts.items()}
    assert [parts[f"reward_{stage}"] for stage in range(3)] == pytest.approx([1.6 / 3, 1.5 / 3, 1.7 / 3])
    assert parts["reward"] == parts["reward_2"] and parts["greedy"] == pytest.approx(0.5)
    assert parts["advantage"] == pytest.approx(float(advantage.abs().mean()))


def test_eq_15_without_terms_is_refused():
    with pytest.raises(ValueError, match="are 0, so nothing would be learned; raise one"):
        CoarseToFineConfig(baseline_weight=0, previous_stage_weight=0)


def test_every_stage_draws_its_own_words():
    """Three stages with the same table: each hears itself alone, with random numbers of its own."""
    decoder, features = several(images=1, steps=3, size=6, seeds=(8, 8, 8))
    for one in decoder.tables:
        one.table.requires_grad_()
    loss, heard = objective(samples=40), []

    def listen(words: Tensor, is_word: Tensor, image_ids: object) -> Tensor:
        heard.append([tuple(row) for row in torch.nn.functional.pad(words, (0, 3 - words.shape[-1]))[0].tolist()])
        return torch.zeros(words.shape[:2])

    loss.reward = listen
    with counter_rng.use(counter_rng.CounterRNG(0, 0, names(1))):
        loss(batch(1), features, decoder)
    assert len(heard) == 3
    assert heard[0][-1] == heard[1][-1] == heard[2][-1]  # greedy
    assert len({tuple(one[:-1]) for one in heard}) == 3
    assert decoder.tables[0].stages == 1


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_stages_before_the_last_have_a_weight(weight):
    decoder = random_decoder({"name": "stack", **SMALL}, seed=1, std=0.6, feature_size=2, vocabulary_size=6)
    loss = CrossEntropy(CrossEntropyConfig(earlier_stage_weight=weight), feature_size=2, vocabulary_size=6)
    terms = loss(batch(4), sight(4), decoder)
    plain = CrossEntropy(CrossEntropyConfig(), feature_size=2, vocabulary_size=6)
    alone = [plain(batch(4), sight(4), StageView(decoder, stage)) for stage in range(3)]
    expected = weight * (alone[0].total + alone[1].total) + alone[2].total
    torch.testing.assert_close(terms.total, expected)
    torch.testing.assert_close(gradient(decoder, terms.total), gradient(decoder, expected))
    for stage, one in enumerate(alone):  # they are in the log whatever their weight
        torch.testing.assert_close(terms.parts[f"words_{stage}"], one.parts["words"])
