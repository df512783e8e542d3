"""Gathered gradients are those of autograd, in every kind of backward pass."""

import torch
from torch.nn import functional as F

from showtell.models.kernels import additive_scores, gathered_gradients, linear, plain

STEPS = 4


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def inputs(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Of a small recurrent walk: words, first hidden, weight of [word, hidden], bias, vectors, projected, w."""
    shapes = ((STEPS, 2, 3, 2), (2, 3, 5), (5, 7), (5,), (2, 6, 5), (2, 6, 5), (1, 5))
    return [random(*shape, seed=seed, dtype=dtype).div(2).requires_grad_() for seed, shape in enumerate(shapes)]


def walk(words, hidden, weight, bias, vectors, projected, score):
    """A decoder in small: columns of one weight at different times, attention with the last hidden vector."""
    outputs = []
    with gathered_gradients():
        for word in linear(words, weight, bias).unbind():
            alpha = additive_scores(projected, hidden, score).softmax(-1)
            hidden = torch.tanh(word + linear(hidden, weight, offset=2) + alpha @ vectors)
            outputs.append(hidden)
    return torch.stack(outputs)


def plain_walk(words, hidden, weight, bias, vectors, projected, score):
    outputs = []
    for word in words.unbind():
        alpha = plain.additive_scores(projected, hidden, score).softmax(-1)
        hidden = torch.tanh(F.linear(torch.cat([word, hidden], -1), weight, bias) + alpha @ vectors)
        outputs.append(hidden)
    return torch.stack(outputs)


def close(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    assert torch.autograd.gradcheck(walk, inputs(torch.float64))


def test_a_second_backward_pass_begins_anew():
    values = inputs()
    ours, theirs = (form(*values) for form in (walk, plain_walk))
    torch.autograd.grad(ours.sum(), values[:1], retain_graph=True)  # the weight is not asked for
    expected = torch.autograd.grad(theirs[:2].sum(), values)  # a part of the steps
    for _ in range(2):
        gradients = torch.autograd.grad(ours[:2].sum(), values, retain_graph=True)
        for one, other in zip(gradients, expected, strict=True):
            close(one, other)


def test_gradients_add_up_over_backward_passes_and_two_walks_do_not_mix():
    values = inputs()
    expected = torch.autograd.grad(3 * plain_walk(*values).sum(), values)
    walk(*values).sum().backward()
    one, other = walk(*values), walk(*values)
    (one + other).sum().backward()
    for value, gradient in zip(values, expected, strict=True):
        close(value.grad, gradient)


def test_columns_side_by_side_with_gaps_and_shared():
    """Parts of two columns each: all six in either order, some that nobody uses, some used by two parts, one twice."""
    for firsts in ((0, 2, 4), (4, 2, 0), (0, 3), (1, 2), (3, 0, 3)):
        weight, parts = random(4, 6, seed=1).requires_grad_(), [random(3, 2, seed=2 + n) for n in range(len(firsts))]
        pairs = list(zip(parts, firsts, strict=True))
        with gathered_gradients():
            ours = sum(linear(part, weight, offset=first).sin() for part, first in pairs)
        theirs = sum(F.linear(part, weight[:, first : first + 2]).sin() for part, first in pairs)
        close(*(torch.autograd.grad(one.sum(), weight)[0] for one in (ours, theirs)))
