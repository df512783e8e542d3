"""Endings of prefixes: what stays, what may come, and how often, against enumeration."""

from __future__ import annotations

import itertools

import torch

from showtell.decoding.continuation import continuations
from showtell.text.vocabulary import Vocabulary
from tests.toys import TableDecoder, table_decoder

PAD, BEGIN, END = Vocabulary.pad, Vocabulary.begin, Vocabulary.end
LONGEST = 3
WORDS = torch.tensor([[[4, 5, END], [5, END, PAD]], [[4, 4, 5], [END, PAD, PAD]]])  # the third is cut off


def uniform(times: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(2, 2, times, 3, LONGEST + 1, generator=torch.Generator().manual_seed(seed))


def endings(
    decoder: TableDecoder, image: int, prefix: tuple[int, ...], temperature: float
) -> dict[tuple[int, ...], float]:
    """Every caption that a prefix may become, with its probability."""
    if (prefix and prefix[-1] == END) or len(prefix) > LONGEST:
        return {prefix: 1.0}
    table = decoder.table[image, len(prefix), prefix[-1] if prefix else BEGIN].double() / temperature
    table[[PAD, BEGIN]] = -torch.inf
    chances = table.softmax(-1).tolist()
    if len(prefix) == LONGEST:
        return {(*prefix, END): chances[END], prefix: 1 - chances[END]}
    probabilities: dict[tuple[int, ...], float] = {}
    for word in (END, *range(3, len(chances))):
        for caption, chance in endings(decoder, image, (*prefix, word), temperature).items():
            probabilities[caption] = probabilities.get(caption, 0.0) + chance * chances[word]
    return probabilities


def test_endings_come_as_often_as_they_should():
    decoder, features = table_decoder(images=2, steps=5, size=6, seed=3)
    times, temperature = 3000, 2.0
    drawn = continuations(decoder, features, WORDS, uniform(times), max_length=LONGEST, temperature=temperature)
    for image, row, step in itertools.product(range(2), range(2), range(3)):
        prefix = tuple(WORDS[image, row, : step + 1].tolist())
        if PAD in prefix:
            continue
        texts = [tuple(word for word in text if word != PAD) for text in drawn[image, row, :, step].tolist()]
        expected = endings(decoder, image, prefix, temperature)
        assert set(texts) <= set(expected)
        statistic, kinds = 0.0, 0
        for caption, chance in expected.items():
            if chance * times > 5:
                statistic += (texts.count(caption) - chance * times) ** 2 / (chance * times)
                kinds += 1
        assert statistic < kinds + 4.5 * kinds**0.5 + 5  # beyond the 999th of 1,000 for these degrees of freedom


def test_what_has_ended_stays_and_padding_stays_padding():
    decoder, features = table_decoder(images=2, steps=5, size=6, seed=3)
    drawn = continuations(decoder, features, WORDS, uniform(2), max_length=LONGEST)
    assert drawn.shape == (2, 2, 2, 3, LONGEST + 1)
    assert drawn[0, 0, :, 2].tolist() == [[4, 5, END, PAD]] * 2
    assert drawn[0, 1, :, 1].tolist() == [[5, END, PAD, PAD]] * 2
    assert drawn[0, 1, :, 2].tolist() == [[5, END, PAD, PAD]] * 2  # of a position behind the end
    assert drawn[1, 1, :, 0].tolist() == [[END, PAD, PAD, PAD]] * 2
    for row in drawn[1, 0, :, 2].tolist():  # as long as captions may be: end or nothing
        assert row in ([4, 4, 5, END], [4, 4, 5, PAD])


def test_an_ending_depends_on_its_own_numbers_alone():
    decoder, features = table_decoder(images=2, steps=5, size=6, seed=4)
    numbers = uniform(4)
    batched = continuations(decoder, features, WORDS, numbers, max_length=LONGEST)
    for image, row, time in itertools.product(range(2), range(2), range(4)):
        one = type(features)(features.vectors[[image]], features.is_region[[image]])
        alone = continuations(
            decoder, one, WORDS[[image], [row]].unsqueeze(1), numbers[[image], [row], time][:, None, None],
            max_length=LONGEST,
        )  # fmt: skip
        assert torch.equal(alone[0, 0, 0], batched[image, row, time])
