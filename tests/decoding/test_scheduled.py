"""Scheduled sampling: which words are fed, how often, drawn from what, and where no gradient flows."""

import math

import torch
from torch import Tensor

from showtell import counter_rng
from showtell.decoding import scheduled, teacher_forced
from showtell.models.contract import Decoder, State
from showtell.types import Features
from tests.toys import SMALL, random_decoder, random_features, table_decoder

BEGIN, END, PAD = 1, 2, 0


def fed(decoder: Decoder) -> list[Tensor]:
    """From now on, the words (B, N) that each step of this decoder reads."""
    inputs: list[Tensor] = []
    step = decoder.step

    def watched(words: Tensor, state: State):
        inputs.append(words)
        return step(words, state)

    decoder.step = watched  # type: ignore[method-assign]
    return inputs


WORDS = torch.tensor([[[1, 4, 5, 6, 7], [1, 8, 4, 2, 0]], [[1, 3, 3, 4, 2], [0, 0, 0, 0, 0]]])


def test_coins_and_draws_have_their_probabilities():
    """Of 20,000 rows about 0.3 replace the second word, and those are spread as the model says; coins are their own."""
    decoder, features = table_decoder(images=1, steps=3, size=8, seed=3)
    rows, p = 20_000, 0.3
    words = torch.full((1, rows, 3), 3)
    words[..., 0] = BEGIN
    table = decoder.table[0, 0, BEGIN].clone()
    table[3] = float("-inf")  # never said by the model, so that a replaced word is not the caption's
    decoder.table[0, 0, BEGIN] = table
    inputs = fed(decoder)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, ["a"])):
        scheduled(decoder, features, words, p)
    second = inputs[1][0]
    replaced = second[second != 3]
    assert abs(len(replaced) / rows - p) < 4 * math.sqrt(p * (1 - p) / rows)
    table[[PAD, BEGIN, END]] = float("-inf")
    expected = table.softmax(-1).double() * len(replaced)
    counts = torch.bincount(replaced, minlength=8).double()
    assert not counts[expected == 0].any()
    chi_square = float(((counts - expected).square() / expected)[expected > 0].sum())
    assert chi_square < 16.3  # 3 degrees of freedom, p = 0.001
    both = float(((inputs[1] != 3) & (inputs[2] != 3)).double().mean())
    third = float((inputs[2] != 3).double().mean())
    assert abs(both - p * third) < 4 * math.sqrt(p * third / rows)


def test_what_is_fed_does_not_depend_on_the_rest_of_the_batch():
    decoder, features = table_decoder(images=2, steps=8, size=9, seed=5)
    words = torch.full((2, 2, 8), 4)
    words[..., 0] = BEGIN
    inputs = fed(decoder)
    with counter_rng.use(counter_rng.CounterRNG(7, 3, ["a", "b"])):
        scheduled(decoder, features, words, 0.5)
    batched = torch.stack(inputs, -1)
    inputs.clear()
    alone = Features(features.vectors[1:], features.is_region[1:])
    with counter_rng.use(counter_rng.CounterRNG(7, 3, ["b"])):
        scheduled(decoder, alone, words[1:, :, :5], 0.5)  # and shorter captions in the batch
    assert torch.equal(torch.stack(inputs, -1), batched[1:, :, :5])
    assert (batched[..., 1:] != 4).any()


def test_the_choice_has_no_gradient():
    """The gradients are those of teacher forcing with the words that were fed."""
    decoder = random_decoder({"name": "sat", **SMALL}, seed=0, std=0.5, feature_size=6, vocabulary_size=9)
    features = random_features()
    targets = torch.randint(3, 9, WORDS.shape, generator=torch.Generator().manual_seed(2))

    def gradients(logits: Tensor) -> list[Tensor]:
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten())
        return list(torch.autograd.grad(loss, list(decoder.parameters())))

    inputs = fed(decoder)
    with counter_rng.use(counter_rng.CounterRNG(1, 1, ["a", "b"])):
        ours = gradients(scheduled(decoder, features, WORDS, 0.7).logits)
    read = torch.stack(inputs, -1)
    assert (read != WORDS).any()
    plain = gradients(teacher_forced(decoder, features, read).logits)
    torch.testing.assert_close(ours, plain)
