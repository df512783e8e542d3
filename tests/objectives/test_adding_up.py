"""The terms and gradients of the batches of a step add up to those of one batch with all its images."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from showtell import counter_rng
from showtell.models import Decoder
from showtell.objectives import OBJECTIVES, Objective, build_objective
from showtell.objectives.contract import counts_of
from showtell.testing import VOCABULARY, captions, features
from showtell.types import Batch, Features, Mentions, map_tensors
from tests.models.test_zoo import build, config_of
from tests.objectives.test_self_critical import gradient

BATCH_MEANS = {"goal_norm", "goal_spread", "intrinsic", "entropy", "manager"}  # ranks and means of one batch
# objective, its settings (no ranks or baselines over the batch) and model
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "cross-entropy": (
        "cross_entropy",
        {
            "doubly_stochastic": 0.7, "word_presence": 0.3, "label_smoothing": 0.1,
            "attention_supervision": {"weight": 2},
        },
        {"name": "sat"},
    ),
    "labels": ("cross_entropy", {"multi_label": 2}, {"name": "updown", "multi_label": True}),
    "hard": ("hard_attention", {"baseline": "none"}, {"name": "sat", "attention": "hard"}),
    "samples": ("self_critical", {"samples": 3, "cross_entropy": 0.5}, {"name": "sat"}),
    "beam": ("self_critical", {"samples": 3, "sampling": "beam", "baseline": "mean"}, {"name": "sat"}),
    "stages": ("coarse_to_fine", {"samples": 3, "cross_entropy": 0.5}, {"name": "stack"}),
    "pre-training": ("adversarial_pretraining", {}, {"name": "hacap"}),
    "adversarial": ("adversarial", {"manager_weight": 0, "rollouts": 2, "baseline": "none"}, {"name": "hacap"}),
}  # fmt: skip


def batch_of(images: slice) -> tuple[Batch, Features]:
    """Some of three images, the first of which has one caption, the others two; words name objects."""
    words = captions()
    words[0, 1] = 0
    indices = torch.where(words[..., 1:] > 7, 0, -1)
    shares = torch.rand(3, 1, 5, generator=torch.Generator().manual_seed(1))
    mentions = Mentions(indices, torch.zeros(3, 1, 1, 4), torch.zeros(3, 4), targets=shares)
    own = map_tensors((words, words[..., 0] > 0, mentions, features()), lambda x: x[images])
    batch = Batch(("a", "b", "c")[images], None, own[0], own[1], mentions=own[2])
    return batch, map_tensors(own[3], lambda x: x.double() if x.is_floating_point() else x)


def terms(objective: Objective, decoder: Decoder, batch: Batch, seen: Features) -> tuple[dict[str, float], Tensor]:
    with counter_rng.use(counter_rng.CounterRNG(3, 1, batch.image_ids)):
        result = objective(batch, seen, decoder)
    parts = {name: float(value) for name, value in result.parts.items() if name not in BATCH_MEANS}
    return parts | {"total": float(result.total.detach())}, gradient(decoder, result.total)


@pytest.mark.parametrize("case", CASES)
def test_batches_of_a_step_add_up_to_the_whole(case):
    name, settings, model = CASES[case]
    decoder = build(config_of(model)).double().train()
    config = OBJECTIVES[name][0].model_validate(settings)
    objective = build_objective(config, feature_size=6, vocabulary_size=VOCABULARY).double()
    objective.prepare(dict(zip("abc", captions().tolist(), strict=True)), 5)
    (whole, seen), parts = batch_of(slice(None)), [batch_of(slice(0, 1)), batch_of(slice(1, 3))]
    expected, whole_gradient = terms(objective, decoder, whole, seen)
    counts = counts_of(*(batch for batch, _ in parts))
    batches = [replace(batch, counts=counts) for batch, _ in parts]
    split = [terms(objective, decoder, batch, own) for batch, (_, own) in zip(batches, parts, strict=True)]
    for part, value in expected.items():
        assert sum(numbers[part] for numbers, _ in split) == pytest.approx(value, rel=1e-5, abs=1e-6), part
    torch.testing.assert_close(split[0][1] + split[1][1], whole_gradient, rtol=1e-4, atol=1e-6)
