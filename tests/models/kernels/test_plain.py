"""The plain form of all kernels gives every model the same numbers, and calls no private operator of torch."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import showtell
from showtell.decoding import greedy, teacher_forced
from showtell.models.kernels import (
    ACTIVATIONS,
    additive_scores,
    embedding,
    gathered_gradients,
    linear,
    lstm_gates,
    onednn,
    plain_kernels,
    switch,
    weighted_sum,
)
from tests.models.test_zoo import ZOO, captions, features, make


@pytest.fixture(autouse=True)
def pack_small_weights(monkeypatch):
    monkeypatch.setattr(onednn, "MIN_PACKED_NUMEL", 1)
    monkeypatch.setattr(onednn, "PREFERS_DEFAULT", False)  # whatever processor this is


@pytest.mark.parametrize("name", ZOO)
def test_a_model_has_the_same_logits_and_gradients(name):
    decoder, image_features, words = make(name).eval(), features(), captions()

    def run() -> list[torch.Tensor | None]:
        vectors = image_features.vectors.clone().requires_grad_()
        logits = teacher_forced(decoder, replace(image_features, vectors=vectors), words).logits
        parameters = [vectors, *decoder.parameters()]
        return [logits, *torch.autograd.grad(logits.log_softmax(-1).square().sum(), parameters, allow_unused=True)]

    fast = run()
    with plain_kernels():
        plain = run()
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("name", ZOO)
def test_a_model_says_the_same(name):
    decoder = make(name).eval()
    fast = greedy(decoder, features(), 6)
    with plain_kernels():
        plain = greedy(decoder, features(), 6)
    assert torch.equal(fast.words, plain.words)
    torch.testing.assert_close(fast.word_logprobs, plain.word_logprobs, atol=1e-4, rtol=1e-4)


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


ids = torch.tensor([[0, 2], [2, 1]])
KERNELS = {
    "linear": (lambda x, w, b: linear(x, w, b, offset=1), ((2, 3, 4), (5, 6), (5,))),
    "embedding": (lambda table: embedding(ids, table), ((4, 3),)),
    "weighted_sum": (weighted_sum, ((2, 3, 4), (2, 4, 5))),
    "additive_scores tanh": (additive_scores, ((2, 4, 5), (2, 3, 5), (5,))),
    "additive_scores relu": (lambda *x: additive_scores(*x, ACTIVATIONS["relu"]), ((2, 4, 5), (2, 3, 5), (5,))),
    "lstm_gates": (lambda *x: torch.cat(lstm_gates(*x), -1), ((2, 3, 8), (2, 3, 8), (2, 3, 2))),
}  # fmt: skip


@pytest.mark.parametrize("in_a_loop", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_same_values_and_gradients(name, in_a_loop):
    function, shapes = KERNELS[name]
    values = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]

    def run() -> list[torch.Tensor]:
        if in_a_loop:
            with gathered_gradients():
                result = function(*values) + function(*values).sin()
        else:
            result = function(*values)
        return [result, *torch.autograd.grad(result.square().sum(), values)]

    fast = run()
    with plain_kernels():
        plain = run()
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_plain_form_calls_no_operator_of_ours(monkeypatch):
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a private operator was called")

    for name in ("product", "packed_product"):
        monkeypatch.setattr(onednn, name, forbidden)
    decoder = make("sat")
    with plain_kernels():
        logits = teacher_forced(decoder, features(), captions()).logits
        logits.sum().backward()
        with torch.no_grad():
            teacher_forced(decoder, features(), captions())
    names: set[str] = set()
    pending = [logits.grad_fn]
    while pending:
        node = pending.pop()
        if node is not None and node not in names:
            names.add(node)
            pending += [following for following, _ in node.next_functions]
    ours = ("_LinearStep", "_OneDnnLinear", "_EmbeddingStep", "_WeightedSumStep", "TiledScores", "FusedGates")
    assert len(names) > 50 and not [node for node in names if node.name().startswith(ours)]


@pytest.mark.parametrize(("value", "expected"), [("plain", True), ("", False)])
def test_the_environment_chooses_the_form(monkeypatch, value, expected):
    monkeypatch.setenv("SHOWTELL_KERNELS", value)
    assert runpy.run_path(str(switch.__file__))["is_plain"]() is expected


def test_private_operators_of_torch_are_called_in_the_kernels_alone():
    private = ("torch.ops.", "torch._C", "._version", "_linear_pointwise")
    folder = Path(showtell.__file__).parent
    for file in folder.rglob("*.py"):
        if "kernels" not in file.parts:
            text = file.read_text(encoding="utf-8")
            assert not [name for name in private if name in text], file
