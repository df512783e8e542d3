"""Log-likelihoods in tiles against torch's own."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from showtell.decoding import likelihood
from showtell.decoding.likelihood import log_likelihood, plain_log_likelihood


def test_a_word_of_three_by_hand() -> None:
    """Scores log 1, log 2, log 5 are probabilities 1/8, 2/8, 5/8; a tenth of the smoothed one is the mean of all."""
    scores = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).log().requires_grad_()
    plain = log_likelihood(scores, torch.tensor(1))
    assert plain.item() == pytest.approx(math.log(2 / 8))
    smoothed = log_likelihood(scores, torch.tensor(1), 0.1)
    assert smoothed.item() == pytest.approx(0.9 * math.log(2 / 8) + 0.1 * math.log(10 / 8**3) / 3)
    (gradient,) = torch.autograd.grad(3 * plain, scores)
    assert gradient.tolist() == pytest.approx([-3 / 8, 3 - 6 / 8, -15 / 8])


@pytest.mark.parametrize("tile", [1, 30, 2**21])  # rows one by one, in threes with two left over, all at once
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_equals_torch(monkeypatch: pytest.MonkeyPatch, tile: int, smoothing: float) -> None:
    """Value and gradient, with a weight for each word."""
    monkeypatch.setattr(likelihood, "TILE", tile)
    scores = torch.randn(2, 7, 10, dtype=torch.float64, requires_grad=True)
    words, weights = torch.randint(0, 10, (2, 7)), torch.randn(2, 7, dtype=torch.float64)
    ours = log_likelihood(scores, words, smoothing)
    theirs = -F.cross_entropy(scores.flatten(0, 1), words.flatten(), reduction="none", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs.view(2, 7))
    torch.testing.assert_close(plain_log_likelihood(scores, words, smoothing), theirs.view(2, 7))
    (of_ours,) = torch.autograd.grad((ours * weights).sum(), scores)
    (of_theirs,) = torch.autograd.grad((theirs.view(2, 7) * weights).sum(), scores)
    torch.testing.assert_close(of_ours, of_theirs)


def test_words_that_count_nothing_get_no_gradient() -> None:
    """Padding, whose weight is 0."""
    scores = torch.randn(3, 10, requires_grad=True)
    logprobs = log_likelihood(scores, torch.tensor([4, 0, 5]))
    (gradient,) = torch.autograd.grad(logprobs[[0, 2]].sum(), scores)
    assert gradient[1].abs().max() == 0
    assert gradient[[0, 2]].abs().max(-1).values.min() > 0


def test_scores_far_apart_and_of_16_bits() -> None:
    """The log of a probability that float32 cannot hold; 16 bits are widened first."""
    scores = torch.tensor([[0.0, 200.0, -200.0]])
    assert log_likelihood(scores, torch.tensor([2])).tolist() == [-400.0]
    narrow = torch.randn(4, 9, dtype=torch.bfloat16)
    logprobs = log_likelihood(narrow, torch.arange(4))
    assert logprobs.dtype == torch.float32
    assert torch.equal(logprobs, log_likelihood(narrow.float(), torch.arange(4)))


def test_keeps_the_scores_alone() -> None:
    """No log-probabilities of all words wait for the backward pass."""
    scores = torch.randn(4, 50, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        log_likelihood(scores, torch.arange(4))
    wide = [x for x in kept if x.numel() >= scores.numel()]
    assert {x.data_ptr() for x in wide} == {scores.data_ptr()}
