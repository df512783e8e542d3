"""Beam search against all captions, and against itself written plainly, on random decoders."""

import itertools
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from showtell.decoding import Captions, Rules, beam, greedy
from showtell.types import Features
from tests.decoding.plain import Hypothesis, every_caption, plain_beam, words_of
from tests.toys import TableDecoder, table_decoder

NO_RULES, NO_PENALTY = Rules(), 0.0
PENALTIES = [NO_PENALTY, 1.0, 0.7, -0.5]
RULES = {
    "none": NO_RULES,
    "min_length": Rules(min_length=2),
    "bigrams": Rules(no_repeat_ngram_size=2),
    "words": Rules(no_repeat_ngram_size=1),
    "but function words": Rules(repeatable=(4, 6)),
    "no word at all": Rules(repeatable=()),
    "forbidden": Rules(forbidden=((4,), (5, 6))),
    "endings": Rules(bad_endings=(4, 5)),
    "prefix": Rules(prefix=(5,)),
    "prefix against rules": Rules(prefix=(4, 4), min_length=2, no_repeat_ngram_size=1, forbidden=((4,), (4, 6))),
    "everything": Rules(min_length=1, no_repeat_ngram_size=2, forbidden=((6, 3),), bad_endings=(6,)),
}
SIZE = 7  # four words to say
seeds = st.integers(0, 1000)


def check(captions, image: int, expected: list[Hypothesis], penalty: float) -> None:
    assert [words_of(captions, image, row) for row in range(len(expected))] == [one.words for one in expected]
    logprobs, scores = captions.logprob[image].tolist(), captions.score[image].tolist()
    assert logprobs[: len(expected)] == pytest.approx([one.logprob for one in expected], abs=1e-4)
    assert scores[: len(expected)] == pytest.approx([one.score(penalty) for one in expected], abs=1e-4)
    assert captions.is_finished[image, : len(expected)].tolist() == [one.words[-1:] == [2] for one in expected]


@pytest.mark.parametrize("name", RULES)
def test_a_wide_beam_is_exhaustive_search(name):
    rules = RULES[name]
    for penalty, seed in itertools.product(PENALTIES, range(8)):
        max_length = max(1 + seed % 3, rules.min_length)
        decoder, features = table_decoder(images=2, steps=max_length + 1, size=SIZE, seed=seed)
        captions = beam(decoder, features, max_length, 100, length_penalty=penalty, rules=rules)
        for image in range(2):
            brute = every_caption(decoder, image, max_length, rules, penalty)
            check(captions, image, brute, penalty)
            assert int(captions.logprob[image].isfinite().sum()) == len(brute)


@given(seeds)
def test_a_narrow_beam_is_that_of_the_plain_version(seed):
    choose = random.Random(seed)
    name = choose.choice(list(RULES))
    penalty, num_beams = choose.choice(PENALTIES), choose.choice([1, 2, 3, 4, 6])
    wanted, max_length = choose.randint(1, num_beams), choose.randint(2, 7)
    decoder, features = table_decoder(images=3, steps=8, size=8, seed=seed)
    captions = beam(
        decoder, features, max_length, num_beams, num_return=wanted, length_penalty=penalty, rules=RULES[name]
    )
    for image in range(3):
        pool = plain_beam(decoder, image, max_length, num_beams, rules=RULES[name], penalty=penalty)
        check(captions, image, pool[:wanted], penalty)


def test_one_beam_is_greedy_whatever_the_rules():
    for (number, rules), seed in itertools.product(enumerate(RULES.values()), range(4)):
        penalty = PENALTIES[(number + seed) % 4]
        decoder, features = table_decoder(images=3, steps=7, size=SIZE, seed=seed)
        one = beam(decoder, features, 6, 1, rules=rules, length_penalty=penalty)
        other = greedy(decoder, features, 6, rules=rules)
        assert torch.equal(one.words, other.words)
        assert torch.allclose(one.logprob, other.logprob)
        assert torch.equal(one.is_finished, other.is_finished)


def test_equal_scores_go_to_the_lower_row_then_the_lower_id():
    decoder, features = table_decoder(images=1, steps=3, size=7, seed=0)
    decoder.table = torch.zeros(1, 3, 7, 7)  # every word is as likely as any other
    captions = beam(decoder, features, 2, 4)
    # After one step: [] end, [3], [4], [5]; then the first row again, lower ids first, and so on.
    assert [words_of(captions, 0, row) for row in range(4)] == [[2], [3, 2], [3, 3, 2], [3, 4, 2]]


def test_neither_the_order_nor_the_company_of_images_matters():
    decoder, features = table_decoder(images=9, steps=10, size=9, seed=11)
    decoder.table[::2, :, :, 2] += 3.0  # every other image ends early, so that the batch thins out on the way
    options = {"rules": Rules(no_repeat_ngram_size=2), "keep_outputs": True}
    batched = beam(decoder, features, 9, 4, **options)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    shuffled = beam(decoder, Features(features.vectors[order], features.is_region[order]), 9, 4, **options)
    for index, image in enumerate(order.tolist()):
        alone = beam(decoder, Features(features.vectors[[image]], features.is_region[[image]]), 9, 4, **options)
        for row in range(4):
            expected = words_of(batched, image, row)
            assert words_of(alone, 0, row) == expected
            assert words_of(shuffled, index, row) == expected
            length = len(expected)
            looked = batched.attention[image, row, :length]
            assert torch.equal(looked, torch.eye(8)[torch.arange(length) % 8])  # the region named like the step
            assert torch.equal(alone.attention[0, row, :length], looked)


def check_outputs(captions: Captions, decoder: TableDecoder) -> None:
    """The outputs are those of the chosen path, and the probabilities of its words are those of the model."""
    assert captions.outputs is not None
    for image, row in itertools.product(*map(range, captions.words.shape[:2])):
        words = words_of(captions, image, row)
        for time, (last, word) in enumerate(zip([1, *words], words, strict=False)):
            logits = captions.outputs.logits[image, row, time]
            assert torch.equal(logits, decoder.table[image, time, last])
            expected = float(logits.log_softmax(-1)[word])
            assert float(captions.word_logprobs[image, row, time]) == pytest.approx(expected, abs=1e-5)
        assert not captions.outputs.logits[image, row, len(words) :].any()


def test_outputs_are_those_of_the_chosen_path():
    decoder, features = table_decoder(images=3, steps=7, size=8, seed=4)
    check_outputs(beam(decoder, features, 6, 4, keep_outputs=True), decoder)
