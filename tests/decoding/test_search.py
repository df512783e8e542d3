"""Greedy and beam against brute force, on random decoders small enough to enumerate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from showtell.decoding import DecodingConfig, beam, greedy, search, teacher_forced
from showtell.decoding.rollout import Captions
from showtell.errors import UsageError
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features
from tests.toys import every_caption, table_decoder


def said(captions: Captions, image: int, row: int) -> list[int]:
    return captions.words[image, row][captions.is_word[image, row]].tolist()


@pytest.mark.parametrize("seed", range(40))
def test_a_wide_beam_is_exhaustive_search(seed):
    max_length = 1 + seed % 3
    decoder, features = table_decoder(images=2, steps=max_length + 1, size=6, seed=seed)
    captions = beam(decoder, features, max_length, num_beams=60)
    for image in range(2):
        brute = every_caption(decoder, image, max_length)[:60]
        found = [said(captions, image, row) for row in range(len(brute))]
        assert found == [words for _, words in brute]
        scores = captions.logprob[image].tolist()
        assert scores[: len(brute)] == pytest.approx([score for score, _ in brute], abs=1e-4)
        assert set(scores[len(brute) :]) <= {float("-inf")}


@pytest.mark.parametrize("seed", range(20))
def test_one_beam_is_greedy(seed):
    decoder, features = table_decoder(images=3, steps=7, size=7, seed=seed)
    one, other = beam(decoder, features, 6, num_beams=1), greedy(decoder, features, 6)
    for image in range(3):
        assert said(one, image, 0) == said(other, image, 0)
    assert torch.allclose(one.logprob, other.logprob)
    assert torch.equal(one.is_finished, other.is_finished)


def test_greedy_takes_the_likeliest_word_each_time():
    decoder, features = table_decoder(images=2, steps=5, size=6, seed=5)
    captions = greedy(decoder, features, max_length=4)
    for image in range(2):
        last, words, total = Vocabulary.begin, [], 0.0
        for time in range(5):
            logprobs = decoder.table[image, time, last].log_softmax(-1).tolist()
            last = max((w for w in range(6) if w not in (Vocabulary.pad, Vocabulary.begin)), key=logprobs.__getitem__)
            if time == 4 and last != Vocabulary.end:
                break
            words.append(last)
            total += logprobs[last]
            if last == Vocabulary.end:
                break
        assert said(captions, image, 0) == words
        assert float(captions.logprob[image, 0]) == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_batch_is_its_images_one_by_one(num_beams):
    decoder, features = table_decoder(images=5, steps=7, size=8, seed=11)
    config = DecodingConfig(num_beams=num_beams, num_return_sequences=num_beams, max_length=6)
    together = search(decoder, features, config)
    for image in range(5):
        alone = search(decoder, Features(features.vectors[[image]], features.is_region[[image]]), config)
        for row in range(num_beams):
            assert said(together, image, row) == said(alone, 0, row)
        assert torch.allclose(together.logprob[image], alone.logprob[0])


@pytest.mark.parametrize("num_beams", [1, 4])
def test_log_probabilities_are_those_of_teacher_forcing(num_beams):
    decoder, features = table_decoder(images=4, steps=7, size=8, seed=2)
    found = search(decoder, features, DecodingConfig(num_beams=num_beams, max_length=6))
    begin = torch.full_like(found.words[..., :1], Vocabulary.begin)
    forced = teacher_forced(decoder, features, torch.cat([begin, found.words[..., :-1]], -1))
    logprobs = forced.logits.log_softmax(-1).gather(-1, found.words.unsqueeze(-1)).squeeze(-1)
    assert torch.allclose(found.word_logprobs, logprobs.masked_fill(~found.is_word, 0.0), atol=1e-5)
    assert torch.allclose(found.logprob, found.word_logprobs.sum(-1), atol=1e-5)


def test_attention_is_that_of_the_chosen_path():
    decoder, features = table_decoder(images=3, steps=7, size=8, seed=4)
    captions = beam(decoder, features, 6, num_beams=4)
    assert captions.attention is not None
    steps = captions.words.shape[-1]
    alive = captions.is_word.unsqueeze(-1)
    expected = torch.eye(8)[:steps].expand(3, 4, -1, -1)  # the table decoder looks at the place named like the time
    assert torch.equal(captions.attention * alive, expected * alive)


def test_pad_and_begin_are_never_said():
    decoder, features = table_decoder(images=4, steps=6, size=6, seed=9)
    decoder.table[..., [Vocabulary.pad, Vocabulary.begin]] = 20.0
    for found in (greedy(decoder, features, 5), beam(decoder, features, 5, 3)):
        words: Tensor = found.words[found.is_word]
        assert not bool(((words == Vocabulary.pad) | (words == Vocabulary.begin)).any())


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(UsageError, match="num_return_sequences=3 asks for more captions than num_beams=2 finds"):
        DecodingConfig.checked({"num_beams": 2, "num_return_sequences": 3})
    with pytest.raises(UsageError, match="search=greedy has one beam, not num_beams=5"):
        DecodingConfig.checked({"num_beams": 5, "search": "greedy"})
