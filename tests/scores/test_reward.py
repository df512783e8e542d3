"""The reward: the reference's numbers, and those of `score` on the same captions, digit for digit."""

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from showtell.errors import DataError, UsageError
from showtell.scores import DocumentFrequency, base, captions
from showtell.scores.base import image_numbers
from showtell.scores.bleu import Bleu
from showtell.scores.cider import Cider
from showtell.scores.reward import Reward


def batch(samples: Sequence[Sequence[Sequence[int]]], length: int | None = None) -> tuple[Tensor, Tensor]:
    """Samples of each image as ids and mask, padded with 0."""
    steps = length or max(1, *(len(words) for own in samples for words in own))
    words = torch.zeros(len(samples), len(samples[0]), steps, dtype=torch.long)
    is_word = torch.zeros_like(words, dtype=torch.bool)
    for image, own in enumerate(samples):
        for number, sample in enumerate(own):
            words[image, number, : len(sample)] = torch.tensor(sample, dtype=torch.long)
            is_word[image, number, : len(sample)] = True
    return words, is_word


@pytest.mark.shared
def test_reward_is_the_references(shared_data: Path) -> None:
    oracle = json.loads((shared_data / "metrics" / "oracle_reward.json").read_text())
    content = (shared_data / "metrics" / "reward_document_frequency.json.gz").read_bytes()
    given = json.loads(gzip.decompress(content))

    def ids(text: str) -> list[int]:
        return list(map(int, text.split()))

    counts = {tuple(ids(gram)): count for gram, count in given["document_frequency"].items()}
    references = {str(image): list(map(ids, texts)) for image, texts in enumerate(oracle["refs"])}
    reward = Reward(references, vocabulary_size=len(oracle["vocab_itow"]))
    reward.document_frequency = DocumentFrequency(counts, given["ref_len"], "given")
    words, is_word = batch([[ids(text)] for text in oracle["hyps"]])
    values = reward(words, is_word, list(references))[:, 0]
    np.testing.assert_allclose(values, oracle["ciderD"], rtol=0, atol=1e-12)
    assert float(values.mean()) == pytest.approx(oracle["ciderD_mean"], abs=1e-12)


IDS = st.integers(0, 6)
CAPTION = st.lists(IDS, max_size=9)
IMAGE = st.tuples(st.lists(CAPTION, min_size=1, max_size=3), st.lists(CAPTION, min_size=2, max_size=2))


@given(st.lists(IMAGE, min_size=1, max_size=4))
def test_reward_equals_the_score_of_the_same_strings(images: list[tuple[list[list[int]], list[list[int]]]]) -> None:
    references = {str(number): own for number, (own, _) in enumerate(images)}
    samples = [own for _, own in images]
    strings = [[list(map(str, caption)) for caption in own] for own in references.values()]
    frequency = DocumentFrequency.of(strings, "references")
    rewards = Reward(references, vocabulary_size=7)(*batch(samples), list(references))
    bleu = Reward(references, vocabulary_size=7, weights={"bleu_4": 1.0})(*batch(samples), list(references))
    for number in range(2):
        predictions = {image: " ".join(map(str, own[number])) for image, own in zip(references, samples, strict=True)}
        texts = {image: [" ".join(map(str, caption)) for caption in own] for image, own in references.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "tokenize", str.split)
            corpus = captions.match(predictions, texts, frequency)
            cider = Cider().statistics(corpus)[:, 0]
            bleu_4 = image_numbers(Bleu(), Bleu().statistics(corpus))[:, 3]
        assert rewards[:, number].tolist() == cider.tolist()
        np.testing.assert_allclose(bleu[:, number], bleu_4, rtol=0, atol=1e-12)


@pytest.mark.parametrize("longest", [12, 130])
def test_a_batch_is_its_samples_one_by_one_whatever_the_padding(longest: int) -> None:
    rng = random.Random(longest)

    def caption() -> list[int]:
        return rng.choices(range(20), k=rng.randint(0, longest))

    references = {f"image {number}": [caption() for _ in range(rng.randint(1, 5))] for number in range(7)}
    samples = [[caption() for _ in range(3)] for _ in references]
    reward = Reward(references, vocabulary_size=20, weights={"cider": 1.0, "bleu_2": 0.5})
    whole = reward(*batch(samples, longest + 70), list(references))
    for image, (name, own) in enumerate(zip(references, samples, strict=True)):
        for number, sample in enumerate(own):
            assert whole[image, number] == reward(*batch([[sample]]), [name])[0, 0], sample


def test_a_weighted_sum_by_hand() -> None:
    # Two images, so words in one image's references weigh log 2. Sample "4 5" against "4 5": CIDEr-D
    # 10 * (1 + 1 + 0 + 0) / 4 = 5, BLEU-1 = 1.
    references = {"1": [[4, 5]], "2": [[6, 7]]}
    reward = Reward(references, vocabulary_size=8, weights={"cider": 2.0, "bleu_1": 0.5})
    values = reward(*batch([[[4, 5]], [[4, 5]]]), ["1", "2"])
    assert values[0, 0].item() == pytest.approx(2 * 5 + 0.5, abs=1e-8)
    assert values[1, 0].item() == pytest.approx(0, abs=1e-6)
    assert values.dtype == torch.float64


def test_discriminability_takes_away_what_the_closest_other_image_would_give() -> None:
    references = {"a": [[1, 2, 3], [1, 2]], "b": [[1, 2, 4]], "c": [[5, 6, 3], [6, 3, 4]]}
    words, is_word = batch([[[1, 2, 3], [6, 3, 4]], [[1, 2, 4], [1, 2]], [[5, 6, 3], [1, 2, 4]]])
    plain = Reward(references, vocabulary_size=7)
    against = {image: plain(words, is_word, [image] * 3) for image in references}  # every sample as if of this image
    expected = [
        own[number] - 0.5 * torch.stack([against[other][number] for other in references if other != image]).max(0)[0]
        for number, (image, own) in enumerate(against.items())
    ]
    rewards = Reward(references, vocabulary_size=7, discriminability=0.5)(words, is_word, list(references))
    torch.testing.assert_close(rewards, torch.stack(expected), rtol=0, atol=1e-12)
    assert (rewards < plain(words, is_word, list(references))).any()


def test_mistakes() -> None:
    with pytest.raises(UsageError, match='There is no reward "cidr": did you mean "cider"'):
        Reward({"1": [[1]]}, vocabulary_size=2, weights={"cidr": 1})
    with pytest.raises(DataError, match=r"1 image\(s\) have none: 2"):
        Reward({"1": [[1]], "2": []}, vocabulary_size=2)
    with pytest.raises(DataError, match="Word ids are below 2; the references have 1 to 5"):
        Reward({"1": [[1, 5]]}, vocabulary_size=2)
    reward = Reward({"1": [[1]]}, vocabulary_size=2)
    with pytest.raises(DataError, match=r"was not prepared for 1 image\(s\): 3"):
        reward(*batch([[[1]]]), ["3"])
