"""What all searches have in common, on random decoders."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from showtell.decoding import DecodingConfig, beam, greedy, search, teacher_forced
from showtell.text.vocabulary import Vocabulary
from tests.decoding.plain import words_of
from tests.toys import table_decoder

WORDS = Vocabulary(["red", "car", "a", "park"])  # ids 4 to 7


@pytest.mark.parametrize("settings", [{}, {"num_beams": 4, "num_return_sequences": 4}, {"prefix": "park a"}], ids=str)
def test_log_probabilities_are_those_of_teacher_forcing(settings):
    decoder, features = table_decoder(images=4, steps=7, size=8, seed=2)
    config = DecodingConfig(max_length=6, **settings)
    captions = search(decoder, features, config, WORDS)
    begin = torch.full_like(captions.words[..., :1], Vocabulary.begin)
    forced = teacher_forced(decoder, features, torch.cat([begin, captions.words[..., :-1]], -1))
    logprobs = forced.logits.log_softmax(-1).gather(-1, captions.words.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(captions.word_logprobs, logprobs.masked_fill(~captions.is_word, 0.0), atol=1e-5)
    assert torch.allclose(captions.logprob, captions.word_logprobs.sum(-1), atol=1e-5)


def test_pad_and_begin_are_never_said():
    decoder, features = table_decoder(images=4, steps=6, size=6, seed=9)
    decoder.table[..., [Vocabulary.pad, Vocabulary.begin]] = 20.0
    for captions in (greedy(decoder, features, 5), beam(decoder, features, 5, 3)):
        words: Tensor = captions.words[captions.is_word]
        assert not bool(((words == Vocabulary.pad) | (words == Vocabulary.begin)).any())


def test_samples_come_back_once_and_ranked():
    decoder, features = table_decoder(images=2, steps=3, size=6, seed=1)
    config = DecodingConfig(search="sample", num_return_sequences=40, max_length=2)
    captions = search(decoder, features, config, WORDS)
    for image in range(2):
        number = int(captions.logprob[image].isfinite().sum())
        texts = [[word for word in words_of(captions, image, row) if word != Vocabulary.end] for row in range(number)]
        assert 1 < number < 40
        assert len({tuple(text) for text in texts}) == number
        assert captions.score[image].tolist() == sorted(captions.score[image].tolist(), reverse=True)


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse-beam", "sample"])
def test_every_search_keeps_every_rule(kind):
    decoder, features = table_decoder(images=6, steps=9, size=8, seed=7)
    beams = {"num_beams": 4} if "beam" in kind else {}
    config = DecodingConfig(
        search=kind, **beams, min_length=3, max_length=8, no_repeat_ngram_size=2, bad_words=("car park",),
        no_bad_endings=True, no_unknown=True,
    )  # fmt: skip
    captions = search(decoder, features, config, WORDS)
    for image in range(6):
        words = WORDS.decode(words_of(captions, image, 0))
        assert 3 <= len(words) <= 8
        assert ("car", "park") not in itertools.pairwise(words)
        assert len(set(itertools.pairwise(words))) == len(words) - 1
        assert words[-1] != "a"
        assert "<unknown>" not in words


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse-beam", "sample"])
def test_words_but_function_words_occur_once_in_every_search(kind):
    decoder, features = table_decoder(images=6, steps=9, size=8, seed=7)
    decoder.table[..., [Vocabulary.end, 6, 7]] += torch.tensor([-4.0, 2.0, 2.0])  # long captions, "a" and "park"
    beams = {"num_beams": 4} if "beam" in kind else {}
    many = {} if kind == "greedy" else {"num_return_sequences": 4}
    config = DecodingConfig(search=kind, **beams, **many, max_length=8)

    def repeated(config: DecodingConfig) -> set[str]:
        captions = search(decoder, features, config, WORDS)
        texts = [
            WORDS.decode(words_of(captions, image, row))
            for image in range(6)
            for row in range(config.num_return_sequences)
        ]
        return {word for text in texts for word in text if text.count(word) > 1}

    assert {"a", "park"} <= repeated(config)
    assert repeated(config.changed(no_repeat_words=True)) == {"a"}


def test_required_words_are_given_as_text():
    decoder, features = table_decoder(images=3, steps=7, size=8, seed=7)
    config = DecodingConfig(num_beams=3, force_words=("Red car",), max_length=6)
    captions = search(decoder, features, config, WORDS)
    for image in range(3):
        assert "red car" in " ".join(WORDS.decode(words_of(captions, image, 0)))


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse-beam", "sample"])
def test_a_prefix_of_a_caption_leads_to_that_caption(kind):
    decoder, features = table_decoder(images=1, steps=9, size=8, seed=7)
    decoder.table[:, :5, :, Vocabulary.end] -= 9.0  # five words or more
    beams = {"num_beams": 64, "num_beam_groups": 1} if kind == "diverse-beam" else {"num_beams": 64}
    config = DecodingConfig(search=kind, **(beams if "beam" in kind else {}), max_length=8, no_repeat_ngram_size=2)
    free = search(decoder, features, config, WORDS)
    words = WORDS.decode(words_of(free, 0, 0))
    assert len(words) > 3
    for length in range(1, len(words) + 1):
        bound = search(decoder, features, config.changed(prefix=" ".join(words[:length])), WORDS)
        assert words_of(bound, 0, 0) == words_of(free, 0, 0)
        assert torch.equal(bound.word_logprobs[0, 0], free.word_logprobs[0, 0])


@pytest.mark.parametrize("kind", ["greedy", "beam", "diverse-beam", "sample"])
def test_every_caption_begins_with_the_prefix(kind):
    decoder, features = table_decoder(images=6, steps=9, size=8, seed=7)
    beams = {"num_beams": 4} if "beam" in kind else {}
    many = {} if kind == "greedy" else {"num_return_sequences": 3}
    config = DecodingConfig(search=kind, **beams, **many, max_length=8, prefix="Park red.", no_repeat_words=True)
    captions = search(decoder, features, config, WORDS)
    free = search(decoder, features, config.changed(prefix=None), WORDS)
    texts = {tuple(WORDS.decode(words_of(captions, image, row))) for image in range(6) for row in range(len(many) or 1)}
    assert {text[:2] for text in texts} == {("park", "red")}
    assert len(texts) > 1
    assert not torch.equal(captions.words[..., 0], free.words[..., 0])
