"""The compiled kernels against their plain forms, and what happens where there is no compiler."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from showtell.models.kernels import additive_scores, fused, plain
from showtell.models.kernels.compiled import library as compiled

needs_compiler = pytest.mark.skipif(compiled.why_not() is not None, reason=f"no compiled kernels: {compiled.why_not()}")
sizes = st.integers(1, 40)
scales = st.sampled_from([0.1, 1.0, 30.0])
activations = st.sampled_from(["tanh", "relu"])


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).requires_grad_()


def assert_same(form, plain_form, values, atol: float = 1e-5) -> None:
    """Values and gradients of float32 against the plain form in float64."""
    one = form(*values)
    assert compiled.fits(*values)
    wide = [value.detach().double().requires_grad_() for value in values]
    other = plain_form(*wide)
    weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(one.double(), other, atol=atol, rtol=1e-5)
    gradients = torch.autograd.grad((one * weights).sum(), values)
    for got, wanted in zip(gradients, torch.autograd.grad((other * weights).sum(), wide), strict=True):
        torch.testing.assert_close(got.double(), wanted, atol=2 * atol * max(1.0, float(wanted.abs().max())), rtol=1e-5)


@needs_compiler
@given(st.integers(1, 3), st.integers(1, 5), sizes, sizes, activations, scales)
@example(2, 3, 196, 512, "tanh", 1.0)
def test_scores_of_attention(images, rows, regions, size, name, scale):
    p, q, w = numbers(images, regions, size, seed=1, scale=scale), numbers(images, rows, size), numbers(size, seed=3)
    atol = 3e-6 * size * (scale if name == "relu" else 1)
    assert_same(lambda *x: additive_scores(*x, name), lambda *x: plain.additive_scores(*x, name), [p, q, w], atol=atol)


@needs_compiler
@given(st.integers(1, 9), st.sampled_from([20.0, 42.9, 43.1, 60.0]), st.integers(0, 5))
def test_scores_whose_exponentials_are_no_float32_are_computed_sum_by_sum(size, far, seed):
    """tanh(p + q) where p and q are large and their sum is not, among rows where they are small."""
    p, q, w = (x.detach() for x in (numbers(2, 7, size, seed=seed), numbers(2, 3, size, seed=9), numbers(size, seed=8)))
    p[0, 2], q[0, 1], q[1, 2] = far + p[0, 2], q[0, 1] - far, q[1, 2] + far
    values = [p.requires_grad_(), q.requires_grad_(), w.requires_grad_()]
    assert_same(additive_scores, plain.additive_scores, values, atol=2e-5 * size)


@needs_compiler
def test_large_arguments_saturate_nan_stays_nan_and_strides_are_read_right():
    far = torch.tensor([[[80.0, -80.0, 1e30, -1e30]]])
    weight = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    assert additive_scores(far, torch.zeros(1, 1, 4), weight).item() == 1 - 10 + 100 - 1000
    for activation in ("tanh", "relu"):
        scores = additive_scores(torch.full((1, 1, 4), float("nan")), torch.zeros(1, 1, 4), weight, activation)
        assert scores.isnan().all()
    values = [numbers(2, 16, 5, seed=1).mT, numbers(2, 3, 16, seed=2), numbers(16, seed=3)]
    torch.testing.assert_close(additive_scores(*values), plain.additive_scores(*values))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, in which the library is looked for anew."""
    monkeypatch.setenv("SHOWTELL_CACHE", str(tmp_path))
    compiled._library.cache_clear()
    yield tmp_path
    compiled._library.cache_clear()


def test_without_a_compiler_or_with_a_broken_one_torch_computes(cache, monkeypatch):
    broken = cache / "broken"
    broken.write_text("#!/bin/sh\necho 'no such target' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert compiled.why_not() == f"{broken} does not compile them: no such target"
    compiled._library.cache_clear()
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "")
    assert compiled.why_not() == "there is no C++ compiler; install g++ or clang++, or name one in CXX"
    scores = additive_scores(torch.ones(1, 2, 3), torch.ones(1, 1, 3), torch.ones(3))
    torch.testing.assert_close(scores, (3 * torch.tensor(2.0).tanh()).expand(1, 1, 2))


@needs_compiler
def test_the_library_is_kept_and_a_damaged_one_is_made_again(cache, monkeypatch):
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX") or "c++", "g++", "clang++"))))
    kept = cache / f"kernels-{compiled._key(compiler)}.so"
    kept.write_bytes(b"damaged")
    assert compiled.why_not() is None and list(cache.iterdir()) == [kept] and kept.stat().st_size > 1000
    compiled._library.cache_clear()
    monkeypatch.setattr(compiled, "_compile", lambda *_: "compiled again")
    assert compiled.why_not() is None


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
