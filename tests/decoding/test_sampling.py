"""Samples: their frequencies, what may be drawn, and that nobody else in the batch matters."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from showtell.decoding import Rules, sample
from showtell.decoding.continuation import continuations
from showtell.decoding.ranking import stable_topk
from showtell.decoding.sampling import _nucleus, inverse_cdf
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features
from tests.decoding.plain import options, words_of
from tests.decoding.test_beam import check_outputs
from tests.toys import TableDecoder, table_decoder

DRAWS = 4000
PAD, END = Vocabulary.pad, Vocabulary.end


def frequencies(decoder: TableDecoder, features: Features, **options) -> torch.Tensor:
    """How often each id comes first."""
    first = sample(decoder, features, 1, samples=DRAWS, **options).words[0, :, 0]
    return torch.bincount(first, minlength=decoder.table.shape[-1]).double()


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    possible = expected > 0
    assert not counts[~possible].any()
    return float(((counts - expected)[possible] ** 2 / expected[possible]).sum())


@pytest.mark.parametrize(("temperature", "seed"), [(1.0, 0), (0.5, 1), (2.0, 0)])
def test_first_words_come_as_often_as_they_should(temperature, seed):
    decoder, features = table_decoder(images=1, steps=2, size=9, seed=seed)
    weights = (decoder.table[0, 0, Vocabulary.begin].double().log_softmax(-1) / temperature).exp()
    weights[[Vocabulary.pad, Vocabulary.begin]] = 0
    expected = weights / weights.sum() * DRAWS
    counts = frequencies(decoder, features, temperature=temperature, seed=seed)
    assert chi_square(counts, expected) < 22.5  # 6 degrees of freedom: above this once in 1,000


@pytest.mark.parametrize("rules", [Rules(), Rules(repeatable=(4,))], ids=["no rule", "repeats"])
def test_captions_come_as_often_as_their_words_are_likely(rules):
    """Of words 3 to 6 only 4 may come twice; what is left of each distribution is drawn in proportion."""
    decoder, features = table_decoder(images=1, steps=4, size=7, seed=3)
    captions = sample(decoder, features, 3, samples=DRAWS, seed=5, rules=rules)
    texts = [tuple(words_of(captions, 0, row)) for row in range(DRAWS)]
    assert any(text.count(4) > 1 for text in texts)
    statistic, kinds = 0.0, 0
    for text in set(texts):
        expected = float(DRAWS)
        for time in range(4):
            if Vocabulary.end in text[:time]:
                break
            logprobs = options(decoder, 0, text[:time], rules, 9)
            share = {
                word: math.exp(logprob) / sum(map(math.exp, logprobs.values())) for word, logprob in logprobs.items()
            }
            cut_off = time == len(text)  # whatever else would have come
            expected *= 1 - share[Vocabulary.end] if cut_off else share.get(text[time], 0.0)
        assert expected > 0, text
        if expected > 5:
            statistic += (texts.count(text) - expected) ** 2 / expected
            kinds += 1
    assert kinds > 20
    assert statistic < kinds + 4.5 * kinds**0.5 + 5


def test_top_k_and_top_p_by_hand():
    probabilities = torch.tensor([0.0, 0.0, 0.1, 0.4, 0.2, 0.3])
    decoder = TableDecoder(probabilities.log().clamp_min(-40).expand(1, 2, 6, 6).clone())
    features = Features(torch.zeros(1, 1, 1), torch.ones(1, 1, dtype=torch.bool))

    def drawn(**options) -> set[int]:
        return set(frequencies(decoder, features, **options).nonzero().flatten().tolist())

    assert drawn() == {2, 3, 4, 5}
    assert drawn(top_k=1) == {3}
    assert drawn(top_k=2) == {3, 5}
    assert drawn(top_p=0.35) == {3}
    assert drawn(top_p=0.69) == {3, 5}  # 0.4 + 0.3 is enough
    assert drawn(top_p=0.71) == {3, 4, 5}
    assert drawn(top_k=2, top_p=0.56) == {3}  # after top_k it is 4/7
    assert drawn(top_k=2, top_p=0.58) == {3, 5}
    counts = frequencies(decoder, features, top_k=3)
    expected = torch.tensor([0, 0, 0, 0.4, 0.2, 0.3], dtype=torch.float64) / 0.9 * DRAWS
    assert chi_square(counts, expected) < 13.8  # 2 degrees of freedom, once in 1,000


def test_a_nucleus_of_many_words_is_found_too():
    decoder, features = table_decoder(images=1, steps=2, size=500, seed=0)  # far more words than are looked at
    decoder.table *= 0.05
    drawn = frequencies(decoder, features, top_p=0.5).nonzero().flatten().tolist()
    logprobs = decoder.table[0, 0, 1].log_softmax(-1)
    logprobs[:2] = float("-inf")
    probabilities, order = logprobs.softmax(-1).sort(descending=True)
    size = int((probabilities.cumsum(0) < 0.5).sum()) + 1
    assert size > 64
    assert set(drawn) <= set(order[:size].tolist())
    assert len(drawn) > 0.9 * size


def test_numbers_fall_on_the_right_words():
    weights = torch.tensor([[0.0, 0.2, 0.0, 0.6, 0.2, 0.0]])
    numbers = torch.tensor([0.0, 0.1999, 0.2001, 0.7999, 0.8001, 1 - 2.0**-24])
    assert inverse_cdf(weights.expand(6, -1), numbers).tolist() == [1, 1, 3, 3, 4, 4]
    assert _nucleus(torch.tensor([0.5, 0.3, 0.2]), 0.6).tolist() == pytest.approx([0.5, 0.3, 0.0])


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.7}, {"rules": Rules(no_repeat_ngram_size=2)}])
def test_neither_company_nor_number_of_samples_matters(options):
    decoder, features = table_decoder(images=7, steps=9, size=9, seed=2)
    decoder.table[::2, :, :, Vocabulary.end] += 2.0  # some images end early and leave
    names = [f"photo {number}" for number in range(7)]
    batched = sample(decoder, features, 8, samples=4, image_ids=names, seed=3, keep_outputs=True, **options)
    order = [5, 0, 3]
    part = Features(features.vectors[order], features.is_region[order])
    some = sample(decoder, part, 8, samples=2, image_ids=[names[image] for image in order], seed=3, **options)
    other = sample(decoder, features, 8, samples=4, image_ids=names, seed=4, **options)
    for index, image in enumerate(order):
        for row in range(2):
            assert words_of(some, index, row) == words_of(batched, image, row)
    assert not torch.equal(batched.words[:, :, :2], other.words[:, :, :2])
    check_outputs(batched, decoder)  # whose probabilities are those of the model, whatever words were drawn by


def test_a_caption_with_nothing_left_to_say_is_cut_off():
    decoder, features = table_decoder(images=2, steps=9, size=6, seed=0)
    captions = sample(decoder, features, 8, samples=3, rules=Rules(min_length=8, no_repeat_ngram_size=1))
    assert captions.is_word.sum(-1).tolist() == [[3, 3, 3], [3, 3, 3]]  # three words to say, each once
    assert not captions.is_finished.any()
    assert captions.logprob.isfinite().all()


@given(
    size=st.integers(1, 3000), k=st.integers(1, 12), levels=st.sampled_from([2, 5, 50, 10**6]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_the_best_are_those_of_sorting_with_ties_to_the_lower_index(size, k, levels, seed):
    scores = (torch.randint(-levels, levels, (3, size), generator=torch.Generator().manual_seed(seed)) / 7).float()
    scores[:, ::5] = float("-inf")
    k = min(k, size)
    values, indices = stable_topk(scores, k)
    for row, best in zip(scores.tolist(), indices.tolist(), strict=True):
        assert best == sorted(range(size), key=lambda index, row=row: (-row[index], index))[:k]
    assert torch.equal(values, scores.gather(-1, indices))


def test_what_has_ended_stays_and_padding_stays_padding():
    words = torch.tensor([[[4, 5, END], [5, END, PAD]], [[4, 4, 5], [END, PAD, PAD]]])  # the third is cut off
    decoder, features = table_decoder(images=2, steps=5, size=6, seed=3)
    uniform = torch.rand(2, 2, 2, 3, 4, generator=torch.Generator().manual_seed(0))
    drawn = continuations(decoder, features, words, uniform, max_length=3)
    assert drawn.shape == (2, 2, 2, 3, 4)
    assert drawn[0, 0, :, 2].tolist() == [[4, 5, END, PAD]] * 2
    assert drawn[0, 1, :, 1].tolist() == [[5, END, PAD, PAD]] * 2
    assert drawn[0, 1, :, 2].tolist() == [[5, END, PAD, PAD]] * 2  # of a position behind the end
    assert drawn[1, 1, :, 0].tolist() == [[END, PAD, PAD, PAD]] * 2
    for row in drawn[1, 0, :, 2].tolist():  # as long as captions may be: end or nothing
        assert row in ([4, 4, 5, END], [4, 4, 5, PAD])
