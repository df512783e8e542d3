"""Scores of attention that torch compiles: on a processor too they are those of the plain form."""

from __future__ import annotations

import pytest
import torch

from showtell.models.kernels import fused, plain


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = (2, 7, 5), (2, 3, 5), (1, 5)
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.fixture
def fresh():
    fused._compile.cache_clear()
    yield
    fused._compile.cache_clear()


@pytest.mark.slow  # it calls a compiler
@pytest.mark.parametrize("activation", plain.ACTIVATIONS)
def test_compiled_scores_and_gradients_are_those_of_the_plain_form(activation, fresh):
    tensors = inputs()
    results = []
    for form in (fused.compiled_scores, plain.additive_scores):
        scores = form(*tensors, activation)
        weights = torch.arange(scores.numel(), dtype=torch.float64).view_as(scores)
        results.append((scores, torch.autograd.grad((weights * scores).sum(), tensors)))
    torch.testing.assert_close(*results)
    assert fused._compile()


def test_without_a_compiler_the_plain_form_runs_and_it_is_said_once(fresh, monkeypatch):
    def refuse(*_: object) -> None:
        raise RuntimeError("Cannot find a working triton installation\nand so on")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: refuse)
    tensors = inputs()
    with pytest.warns(UserWarning, match="attention is not compiled.*: Cannot find a working triton installation$"):
        scores = fused.compiled_scores(*tensors, "tanh")
    assert torch.equal(scores, plain.additive_scores(*tensors, "tanh"))
    assert torch.equal(fused.compiled_scores(*tensors, "tanh"), scores)
