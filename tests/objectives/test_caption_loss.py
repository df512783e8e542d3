"""L_d = - sum_t log p(y_t) + lambda sum_i (1 - sum_t alpha_ti)^2 (Xu et al. 2015, §4.2.1) by words and cells.

A batch has the sum of its captions' L_d over the number of their words.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from showtell import counter_rng
from showtell.models import Decoder
from showtell.models.hacap import HacapConfig
from showtell.models.sat import SatConfig
from showtell.objectives import OBJECTIVES, build_objective
from showtell.objectives.contract import Objective
from showtell.types import Batch, Features
from tests.toys import SMALL, random_decoder

WEIGHT = 0.7
CAPTIONS = [[[1, 4, 5, 2], [1, 6, 2]], [[1, 5, 6, 4, 4, 2]], [[1, 2], [1, 4, 6, 5, 2], [1, 5, 2]]]  # of three images
REGIONS = (3, 4, 2)  # of each image; the rest of four is padding
HARD = SatConfig(attention="hard", **SMALL)
GOALS = HacapConfig(
    **SMALL, output_size=3, goal_size=2, goal_embedding_size=3, manager_size=3, discriminator_embedding_size=3,
    discriminator_size=4,
)  # fmt: skip
# objective, its settings, model, and whether the decoder is as in training, where hard attention samples
CASES: dict[str, tuple[str, dict[str, Any], Any, bool]] = {
    "soft": ("cross_entropy", {}, SatConfig(**SMALL), True),
    "hard": ("hard_attention", {"reinforce": 0, "entropy": 0}, HARD, False),
    "hard, expectation": (
        "hard_attention", {"reinforce": 0, "entropy": 0},
        HARD.model_copy(update={"expectation_probability": 1.0}), True,
    ),
    "goals": ("adversarial_pretraining", {"manager_weight": 0, "discriminator_weight": 0}, GOALS, True),
}  # fmt: skip


@torch.no_grad()
def loss_of_caption(decoder: Decoder, image: Features, words: Sequence[int], weight: float) -> float:
    """L_d of one caption of one image, begin and end included."""
    state, loss, looked = decoder.start(image), 0.0, [0.0] * int(image.is_region.sum())
    for last, word in itertools.pairwise(words):
        output, state = decoder.step(torch.tensor([[last]]), state)
        loss -= float(decoder.readout(output)[0, 0].double().log_softmax(-1)[word])
        assert output.attention is not None
        looked = [so_far + float(alpha) for so_far, alpha in zip(looked, output.attention[0, 0], strict=False)]
    return loss + weight * sum((1 - total) ** 2 for total in looked)


def loss_of_captions(decoder: Decoder, images: Sequence[Features], captions: Any, weight: float) -> float:
    """The sum of L_d over the captions of images, over the number of their words."""
    total = sum(
        loss_of_caption(decoder, image, words, weight)
        for image, own in zip(images, captions, strict=True)
        for words in own
    )
    return total / sum(len(words) - 1 for own in captions for words in own)


def image(number: int) -> Features:
    vectors = torch.randn(1, REGIONS[number], 2, generator=torch.Generator().manual_seed(number)).double()
    return Features(vectors, torch.ones(1, REGIONS[number], dtype=torch.bool))


def batch_of(numbers: Sequence[int], captions: Sequence[Sequence[Sequence[int]]]) -> tuple[Batch, Features]:
    """Images with captions, all of them padded."""
    rows, length = max(map(len, captions)), max(len(words) for own in captions for words in own)
    words = torch.zeros(len(numbers), rows, length, dtype=torch.long)
    vectors, is_region = torch.zeros(len(numbers), 4, 2).double(), torch.zeros(len(numbers), 4, dtype=torch.bool)
    for at, (number, own) in enumerate(zip(numbers, captions, strict=True)):
        vectors[at, : REGIONS[number]], is_region[at, : REGIONS[number]] = image(number).vectors[0], True
        for row, caption in enumerate(own):
            words[at, row, : len(caption)] = torch.tensor(caption)
    ids = tuple(str(number) for number in numbers)
    return Batch(ids, None, words, words[..., 0] == 1), Features(vectors, is_region)


def made(case: str) -> tuple[Objective, Decoder]:
    name, settings, model, in_training = CASES[case]
    config = OBJECTIVES[name][0].model_validate({"doubly_stochastic": WEIGHT, **settings})
    objective = build_objective(config, feature_size=2, vocabulary_size=7).double()
    objective.prepare({}, 3)
    return objective, random_decoder(model, seed=2, std=0.8, feature_size=2, vocabulary_size=7).train(in_training)


def total_of(objective: Objective, decoder: Decoder, batch: Batch, features: Features) -> float:
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        return float(objective(batch, features, decoder).total.detach())


@pytest.mark.parametrize("case", CASES)
def test_the_total_of_captions_of_different_lengths(case):
    objective, decoder = made(case)
    expected = loss_of_captions(decoder, [image(0), image(1), image(2)], CAPTIONS, WEIGHT)
    assert total_of(objective, decoder, *batch_of([0, 1, 2], CAPTIONS)) == pytest.approx(expected, rel=1e-6)
