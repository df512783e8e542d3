"""The plain form of all kernels gives every model the same numbers, and calls no private operator of torch."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from showtell.decoding import greedy, teacher_forced
from showtell.models.contract import Decoder
from showtell.models.kernels import onednn, plain_kernels
from showtell.testing import captions, features
from tests.models.test_zoo import make

# Each uses kernels in its own way: LSTM gates, scores by tanh and by ReLU, columns of one weight, all steps at once.
REPRESENTATIVE = ["nic lstm input", "sat", "sat tutorial", "updown luo", "hacap", "transformer luo"]
# Single precision rounds each of some hundred operations in a row by 6e-8, and norms of 8 numbers magnify that.
ROUNDING = 1e-4


def logits_and_gradients(decoder: Decoder) -> list[Tensor]:
    """Logits of given words, and the gradients of features and weights, as one vector."""
    weights = list(decoder.parameters())
    given = features()
    vectors = given.vectors.to(weights[0].dtype).requires_grad_()
    logits = teacher_forced(decoder, replace(given, vectors=vectors), captions()).logits
    loss = logits.log_softmax(-1).square().sum()
    gradients = torch.autograd.grad(loss, [vectors, *weights], allow_unused=True, materialize_grads=True)
    return [logits.detach().double(), torch.cat([gradient.flatten().double() for gradient in gradients])]


@pytest.mark.parametrize("name", REPRESENTATIVE)
def test_a_model_has_the_logits_gradients_and_captions_of_its_plain_form_in_double_precision(name):
    decoder = make(name).eval()
    fast, caption = logits_and_gradients(decoder), greedy(decoder, features(), 6)
    with plain_kernels():
        same, plain = greedy(decoder, features(), 6), logits_and_gradients(decoder.double())
    for one, other in zip(fast, plain, strict=True):
        assert float((one - other).norm()) < ROUNDING * float(other.norm())
    assert torch.equal(caption.words, same.words)
    torch.testing.assert_close(caption.word_logprobs, same.word_logprobs, atol=1e-5, rtol=0)


def test_the_plain_form_calls_no_operator_of_ours(monkeypatch):
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a private operator was called")

    monkeypatch.setattr(onednn, "_packed", forbidden)
    decoder = make("sat")
    with plain_kernels():
        logits = teacher_forced(decoder, features(), captions()).logits
        logits.sum().backward()
        with torch.no_grad():
            teacher_forced(decoder, features(), captions())
    nodes: set[object] = set()
    pending = [logits.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            pending += [following for following, _ in node.next_functions]
    assert len(nodes) > 50 and not [node for node in nodes if node.name().startswith("_")]  # torch's own have no _
