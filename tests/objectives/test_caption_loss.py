"""L_d = - sum_t log p(y_t) + lambda sum_i (1 - sum_t alpha_ti)^2 (Xu et al. 2015, §4.2.1) by words and cells.

A batch has the sum of its captions' L_d over the number of their words.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from showtell import counter_rng
from showtell.decoding.rollout import pad_captions
from showtell.models import Decoder
from showtell.models.hacap import HacapConfig
from showtell.models.sat import SatConfig
from showtell.objectives import OBJECTIVES, build_objective
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


@pytest.mark.parametrize("case", CASES)
def test_the_total_of_captions_of_different_lengths(case):
    name, settings, model, in_training = CASES[case]
    config = OBJECTIVES[name][0].model_validate({"doubly_stochastic": WEIGHT, **settings})
    objective = build_objective(config, feature_size=2, vocabulary_size=7).double()
    objective.prepare({}, 3)
    decoder = random_decoder(model, seed=2, std=0.8, feature_size=2, vocabulary_size=7).train(in_training)
    images, words = [image(number) for number in range(3)], pad_captions(CAPTIONS)
    is_caption = words[..., 1] > 0
    words[~is_caption] = 0
    batch = Batch(("0", "1", "2"), None, words, is_caption)
    vectors = pad_sequence([one.vectors[0] for one in images], batch_first=True)
    is_region = pad_sequence([one.is_region[0] for one in images], batch_first=True)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        total = float(objective(batch, Features(vectors, is_region), decoder).total.detach())
    assert total == pytest.approx(loss_of_captions(decoder, images, CAPTIONS, WEIGHT), rel=1e-6)
