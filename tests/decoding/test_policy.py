"""Captions drawn as a policy: their probabilities sum to one, and gradients are kept."""

import itertools

import pytest
import torch
from torch import Tensor

from showtell import counter_rng
from showtell.decoding import Captions, beam, greedy
from showtell.decoding.policy import beam_rollouts, policy_logprobs, rollouts
from showtell.decoding.rollout import collect, trimmed
from showtell.errors import UsageError
from showtell.models.contract import Decoder, Output
from showtell.models.sat import SatDecoder
from showtell.types import Features
from tests.toys import SMALL, random_decoder, table_decoder

BEGIN, END, PAD, SAYABLE = 1, 2, 0, (3, 4, 5)
REGIONS = 2


def sat(**settings: object) -> SatDecoder:
    """Six ids, in double precision."""
    return random_decoder({"name": "sat", **SMALL, **settings}, seed=1, std=0.8, feature_size=2, vocabulary_size=6)


def sight(images: int = 1) -> Features:
    """Images that look the same."""
    vectors = torch.randn(1, REGIONS, 2, generator=torch.Generator().manual_seed(2)).double()
    return Features(vectors.expand(images, -1, -1), torch.ones(images, REGIONS, dtype=torch.bool))


def every_caption(max_length: int) -> Captions:
    """All captions of one image: those that end after 0 to L words, and those that are cut off behind L."""
    sequences = [list(words) for length in range(max_length + 1) for words in itertools.product(SAYABLE, repeat=length)]
    whole = [[*words, END] for words in sequences] + [words for words in sequences if len(words) == max_length]
    padded = torch.tensor([words + [PAD] * (max_length + 1 - len(words)) for words in whole])
    return collect(padded[None], torch.zeros(1, *padded.shape))


def fed(decoder: Decoder, features: Features, captions: Captions) -> Output:
    """The outputs of a decoder that is fed captions, one step more than they have words."""
    return decoder.forced_outputs(features, torch.nn.functional.pad(captions.words, (1, 0), value=BEGIN))


def test_probabilities_by_hand():
    """One finished caption and one that is cut off at two words, from a table of logits."""
    decoder, features = table_decoder(images=1, steps=3, size=6, seed=3)
    captions = trimmed(collect(torch.tensor([[[4, END, PAD], [5, 3, PAD]]]), torch.zeros(1, 2, 3)))
    logprobs = policy_logprobs(decoder, fed(decoder, features, captions), captions)[0]

    def p(step: int, last: int, word: int) -> Tensor:
        return decoder.table[0, step, last, 2:].softmax(-1)[word - 2]

    expected = [
        [p(0, BEGIN, 4).log(), p(1, 4, END).log(), torch.tensor(0.0)],
        [p(0, BEGIN, 5).log(), p(1, 5, 3).log(), (1 - p(2, 3, END)).log()],
    ]
    torch.testing.assert_close(logprobs, torch.stack([torch.stack(row) for row in expected]))


def test_captions_come_as_often_as_they_are_likely():
    rows, decoder = 20_000, sat()
    captions = every_caption(2)
    with torch.no_grad():
        probability = policy_logprobs(decoder, fed(decoder, sight(), captions), captions).sum(-1).exp()[0]
        with counter_rng.use(counter_rng.CounterRNG(0, 0, ["a"])):
            drawn = rollouts(decoder, sight(), 2, rows).samples.words[0]
    drawn = torch.nn.functional.pad(drawn, (0, 3 - drawn.shape[-1]))
    counts = (drawn[:, None] == captions.words).all(-1).sum(0)
    assert int(counts.sum()) == rows
    chi_square = float(((counts - rows * probability).square() / (rows * probability)).sum())
    assert chi_square < 46.8  # 21 degrees of freedom, p = 0.001


def test_captions_of_a_beam_stand_beside_the_greedy_one():
    decoder, features = table_decoder(images=5, steps=9, size=8, seed=6)
    rollout, best = beam_rollouts(decoder, features, 8, 3), beam(decoder, features, 8, 3)
    assert torch.equal(rollout.samples.words[..., : best.words.shape[-1]], best.words)
    assert not rollout.samples.is_word[..., best.words.shape[-1] :].any()
    torch.testing.assert_close(rollout.samples.logprob, best.logprob)
    alone = greedy(decoder, features, 8).words
    for drawn in (rollout, rollouts(decoder, features, 8, 3)):
        assert torch.equal(drawn.captions.words[:, -1:, : alone.shape[-1]], alone)
    assert len(set(rollout.samples.is_finished.flatten().tolist())) == 2
    logprobs = policy_logprobs(decoder, rollout.outputs, rollout.samples)
    torch.testing.assert_close(logprobs, policy_logprobs(decoder, fed(decoder, features, best), best))
    with torch.no_grad():
        assert beam_rollouts(decoder, features, 8, 3).outputs is None


def test_a_beam_of_more_captions_than_there_are_is_refused():
    """Of at most one word: the empty one, and three words, cut off or ended."""
    decoder, features = table_decoder(images=2, steps=2, size=6, seed=0)
    assert beam_rollouts(decoder, features, 1, 4).samples.words.shape[:2] == (2, 4)
    with pytest.raises(UsageError, match="fewer than 9 captions of at most 1 words"):
        beam_rollouts(decoder, features, 1, 9)
