import math

import pytest
import torch

from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.models.sat import SatDecoder
from showtell.objectives.hard_attention import HardAttention, HardAttentionConfig
from showtell.types import Batch, Features
from tests.objectives.test_self_critical import gradient
from tests.toys import SMALL, random_decoder, random_features

REGIONS, STEPS = 3, 3
WORDS = torch.tensor([[[1, 4, 5, 2]]])  # (B, N, T + 1)


def model(**settings: object) -> SatDecoder:
    config = {"name": "sat", "attention": "hard", "expectation_probability": 0.0, **SMALL, **settings}
    return random_decoder(config, seed=1, std=0.8, feature_size=2, vocabulary_size=6).train()


def features(images: int = 1) -> Features:
    return random_features(images, REGIONS, 2, seed=2)


def batch(rows: int = 1, images: int = 1) -> Batch:
    words = WORDS.expand(images, rows, -1).contiguous()
    return Batch(tuple(map(str, range(images))), None, words, torch.ones(images, rows, dtype=torch.bool))


def objective(**settings: object) -> HardAttention:
    config = HardAttentionConfig.model_validate({"reinforce": 1.0, "entropy": 0.0, "per_word": False, **settings})
    return HardAttention(config, feature_size=2, vocabulary_size=6).double()


def logprobs_of_regions(
    decoder: SatDecoder, regions: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """log p(y | s, a), log p(s | a) and H[s] when the regions are chosen by hand, by the model's own step."""
    state = decoder.start(features())
    word_logprobs, chosen, entropy = [], [], []
    for time, region in enumerate(regions):
        alpha = decoder.attention(state.rows.hidden, state.image.projected, state.image.is_region)[0, 0]
        one = torch.nn.functional.one_hot(torch.tensor(region), REGIONS).double()
        decoder._attend = lambda *_, one=one: ((one @ features().vectors)[None], None)  # type: ignore[method-assign]
        output, state = decoder.step(WORDS[..., time], state)
        del decoder._attend
        word_logprobs.append(decoder.readout(output)[0, 0].log_softmax(-1)[WORDS[0, 0, time + 1]])
        chosen.append(alpha[region].log())
        entropy.append(-(alpha * alpha.log()).sum())
    return torch.stack(word_logprobs).sum(), torch.stack(chosen).sum(), torch.stack(entropy).sum()


@pytest.mark.parametrize(("baseline", "b"), [("moving_average", -4.0), ("none", 0.0)])
def test_the_terms_by_hand(baseline, b):
    decoder, loss = model(), objective(reinforce=0.3, entropy=0.2, baseline=baseline)
    torch.manual_seed(0)
    forced = teacher_forced(decoder, features(), batch().inputs)
    caption_logprob, chosen, entropy = logprobs_of_regions(
        decoder, tuple(forced.outputs.sampled_regions[0, 0].tolist())
    )
    loss.baseline.fill_(-4.0)
    loss.is_first.fill_(False)
    total, parts = loss._terms(batch(), features(), forced, decoder)
    expected = -(caption_logprob + 0.3 * (caption_logprob.detach() - b) * chosen + 0.2 * entropy) / STEPS
    assert float(total.detach()) == pytest.approx(float(expected.detach()))
    torch.testing.assert_close(gradient(decoder, total), gradient(decoder, expected))
    after = -4.0 if baseline == "none" else 0.9 * -4.0 + 0.1 * float(caption_logprob.detach())
    assert float(loss.baseline) == pytest.approx(after) and float(parts["baseline"]) == b
    assert float(parts["words"].detach()) == pytest.approx(-float(caption_logprob.detach()) / STEPS)


@pytest.mark.parametrize("expected", [0.0, 1.0])
def test_the_baseline_begins_with_the_first_batch_and_the_expectation_gives_the_likelihood_alone(expected):
    """The likelihood itself is in test_caption_loss.py."""
    decoder, loss = model(expectation_probability=expected), objective()
    _, parts = loss._terms(batch(), features(), teacher_forced(decoder, features(), batch().inputs), decoder)
    assert float(parts["reinforce"].detach()) == 0  # one caption: its reward is the mean
    assert bool(loss.is_first) == (expected == 1) == (float(parts["entropy"].detach()) == 0)
    assert (float(loss.baseline) < -1) == (expected == 0)


def test_the_coin_falls_for_whole_captions_of_an_image():
    decoder = model(expectation_probability=0.5)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, [str(image) for image in range(400)])):
        forced = teacher_forced(decoder, features(400), batch(2, 400).inputs)
    is_expected = forced.outputs.sampled_regions < 0  # (B, N, T)
    assert bool((is_expected == is_expected[:, :1, :1]).all())
    assert abs(float(is_expected[:, 0, 0].double().mean()) - 0.5) < 3.3 * math.sqrt(0.25 / 400)


@pytest.mark.parametrize("look", ["argmax", "expectation"])
def test_where_it_looks_when_it_does_not_learn(look):
    decoder = model(eval_attention=look).eval()
    output, _ = decoder.step(torch.tensor([[1]]), decoder.start(features()))
    if look == "expectation":
        assert output.sampled_regions is None
        expected = output.attention @ features().vectors
    else:
        region = int(output.sampled_regions)
        assert region == int(output.attention.argmax())
        expected = features().vectors[:, [region]]
    torch.testing.assert_close(output.context, output.gate.unsqueeze(-1) * expected)
