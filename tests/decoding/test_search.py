"""What all searches have in common, on random decoders."""

import itertools

import pytest
import torch

from showtell.decoding import DecodingConfig, search, teacher_forced
from showtell.text.vocabulary import Vocabulary
from tests.decoding.plain import words_of
from tests.toys import table_decoder

WORDS = Vocabulary(["red", "car", "a", "park"])  # ids 4 to 7


@pytest.mark.parametrize("settings", [{}, {"num_beams": 4, "num_return_sequences": 4}, {"prefix": "park a"}], ids=str)
def test_log_probabilities_are_those_of_teacher_forcing(settings):
    decoder, features = table_decoder(images=4, steps=7, size=8, seed=2)
    captions = search(decoder, features, DecodingConfig(max_length=6, **settings), WORDS)
    begin = torch.full_like(captions.words[..., :1], Vocabulary.begin)
    forced = teacher_forced(decoder, features, torch.cat([begin, captions.words[..., :-1]], -1))
    logprobs = forced.logits.log_softmax(-1).gather(-1, captions.words.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(captions.word_logprobs, logprobs.masked_fill(~captions.is_word, 0.0), atol=1e-5)
    assert torch.allclose(captions.logprob, captions.word_logprobs.sum(-1), atol=1e-5)


def test_samples_come_back_once_and_ranked():
    decoder, features = table_decoder(images=2, steps=3, size=6, seed=1)
    captions = search(decoder, features, DecodingConfig(search="sample", num_return_sequences=40, max_length=2), WORDS)
    for image in range(2):
        number = int(captions.logprob[image].isfinite().sum())
        texts = [[word for word in words_of(captions, image, row) if word != Vocabulary.end] for row in range(number)]
        assert 1 < number < 40
        assert len({tuple(text) for text in texts}) == number
        assert captions.score[image].tolist() == sorted(captions.score[image].tolist(), reverse=True)


@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_every_search_keeps_every_rule(kind):
    decoder, features = table_decoder(images=6, steps=9, size=8, seed=7)
    beams = {"num_beams": 4} if kind == "beam" else {}
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


@pytest.mark.parametrize("kind", ["greedy", "beam", "sample"])
def test_a_prefix_of_a_caption_leads_to_that_caption(kind):
    decoder, features = table_decoder(images=1, steps=9, size=8, seed=7)
    decoder.table[:, :5, :, Vocabulary.end] -= 9.0  # five words or more
    beams = {"num_beams": 64} if kind == "beam" else {}
    config = DecodingConfig(search=kind, **beams, max_length=8, no_repeat_ngram_size=2)
    free = search(decoder, features, config, WORDS)
    words = WORDS.decode(words_of(free, 0, 0))
    assert len(words) > 3
    for length in range(1, len(words) + 1):
        bound = search(decoder, features, config.changed(prefix=" ".join(words[:length])), WORDS)
        assert words_of(bound, 0, 0) == words_of(free, 0, 0)
        assert torch.equal(bound.word_logprobs[0, 0], free.word_logprobs[0, 0])
