"""The compiled kernels against their plain forms, and what happens where there is no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from showtell.decoding.likelihood import log_likelihood, plain_log_likelihood

from showtell import train
from showtell.errors import RecipeError
from showtell.models.kernels import ACTIVATIONS, additive_scores, compiled, compiled_kernels, lstm_gates, plain

needs_compiler = pytest.mark.skipif(compiled.why_not() is not None, reason=f"no compiled kernels: {compiled.why_not()}")
sizes = st.integers(1, 40)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).requires_grad_()


def assert_same(form, plain_form, values, atol: float = 1e-5) -> None:
    """Values and gradients of float32 against the plain form in float64."""
    result = form(*values)
    one = result if isinstance(result, torch.Tensor) else torch.cat(result, -1)
    assert compiled.fits(*values)
    wide = [value.detach().double().requires_grad_() for value in values]
    expected = plain_form(*wide)
    other = expected if isinstance(expected, torch.Tensor) else torch.cat(expected, -1)
    weights = torch.randn(one.shape, generator=torch.Generator().manual_seed(9))
    torch.testing.assert_close(one.double(), other, atol=atol, rtol=1e-5)
    gradients = torch.autograd.grad((one * weights).sum(), values)
    for got, wanted in zip(gradients, torch.autograd.grad((other * weights).sum(), wide), strict=True):
        torch.testing.assert_close(got.double(), wanted, atol=2 * atol * max(1.0, float(wanted.abs().max())), rtol=1e-5)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 5), sizes, sizes, st.sampled_from(sorted(ACTIVATIONS)),
    st.sampled_from([0.1, 1.0, 30.0]),
)  # fmt: skip
@example(2, 3, 196, 512, "tanh", 1.0)
def test_scores_of_attention(images, rows, regions, size, name, scale):
    values = [
        numbers(images, regions, size, seed=1, scale=scale), numbers(images, rows, size, seed=2), numbers(size, seed=3)
    ]  # fmt: skip
    activation = ACTIVATIONS[name]
    assert_same(
        lambda *x: additive_scores(*x, activation), lambda *x: plain.additive_scores(*x, activation), values,
        atol=3e-6 * size * (scale if name == "relu" else 1),
    )  # fmt: skip


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), sizes, st.sampled_from([0.1, 1.0, 30.0]))
def test_gates_of_an_lstm(images, rows, size, scale):
    values = [
        numbers(images, rows, 4 * size, seed=1, scale=scale), numbers(images, rows, 4 * size, seed=2),
        numbers(images, rows, size, seed=3),
    ]  # fmt: skip
    assert_same(lstm_gates, plain.lstm_gates, values)


@needs_compiler
def test_the_first_step_of_a_loop_has_one_state_for_all_rows():
    values = [numbers(2, 5, 16, seed=1), numbers(2, 1, 16, seed=2), numbers(2, 1, 4, seed=3)]
    assert_same(lstm_gates, plain.lstm_gates, values)


@needs_compiler
def test_gates_that_lie_apart_in_memory_are_read_right():
    gates = numbers(2, 16, 5, seed=1).mT
    assert not gates.is_contiguous()
    values = [gates, numbers(2, 5, 16, seed=2), numbers(2, 5, 4, seed=3)]
    with torch.no_grad():
        one, other = lstm_gates(*values), plain.lstm_gates(*values)
    torch.testing.assert_close(one, other)


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(sizes, st.integers(2, 200), st.sampled_from([0.0, 0.1]), st.sampled_from([0.1, 1.0, 30.0]))
def test_the_log_likelihood_of_words(rows, size, smoothing, scale):
    words = torch.randint(0, size, (rows,), generator=torch.Generator().manual_seed(4))
    assert_same(
        lambda x: log_likelihood(x, words, smoothing), lambda x: plain_log_likelihood(x, words, smoothing),
        [numbers(rows, size, scale=scale)],
    )  # fmt: skip


@needs_compiler
def test_words_that_are_ruled_out_and_numbers_that_are_none_are_treated_as_torch_does():
    infinity, nan = float("inf"), float("nan")
    scores = torch.tensor(
        [[0.0, -infinity, 1.0], [-infinity, -infinity, 0.0], [0.0, nan, 1.0], [nan, 0.0, 1.0], [0.0, infinity, 1.0]]
    ).requires_grad_()
    words = torch.tensor([0, 2, 0, 1, 0])
    one, other = log_likelihood(scores, words), plain_log_likelihood(scores, words)
    torch.testing.assert_close(one[:4], other[:4], equal_nan=True)
    assert not one[4].isfinite()
    (got,), (wanted,) = (torch.autograd.grad(x[:2].sum(), scores) for x in (one, other))
    torch.testing.assert_close(got[:2], wanted[:2])
    assert got[0, 1] == 0


@needs_compiler
def test_large_arguments_saturate_and_nan_stays_nan():
    far = torch.tensor([[[80.0, -80.0, 1e30, -1e30]]])
    weight = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    assert additive_scores(far, torch.zeros(1, 1, 4), weight).item() == 1 - 10 + 100 - 1000
    for activation in ACTIVATIONS.values():
        scores = additive_scores(torch.full((1, 1, 4), float("nan")), torch.zeros(1, 1, 4), weight, activation)
        assert scores.isnan().all()
    hidden, cell = lstm_gates(torch.full((1, 4), float("nan")), torch.zeros(1, 4), torch.zeros(1, 1))
    assert hidden.isnan().all() and cell.isnan().all()


@needs_compiler
@pytest.mark.parametrize("size", [512, 77])
def test_the_bits_of_a_row_depend_neither_on_those_beside_it_nor_on_the_number_of_threads(size):
    p, q, w = (x.detach() for x in (numbers(6, 49, size, seed=1), numbers(6, 5, size, seed=2), numbers(size, seed=3)))
    gates, cell = numbers(30, 4 * size, seed=4).detach(), numbers(30, size, seed=5).detach()
    scores, words = numbers(30, 9 * size, seed=6), torch.arange(30)

    def run(images: slice, rows: slice) -> list[torch.Tensor]:
        logprobs = log_likelihood(scores[rows], words[rows])
        (gradient,) = torch.autograd.grad(logprobs.sum(), scores)
        return [additive_scores(p[images], q[images], w), lstm_gates(gates[rows], gates[rows], cell[rows])[0],
                logprobs.detach(), gradient[rows]]  # fmt: skip

    threads, together = torch.get_num_threads(), run(slice(None), slice(None))
    try:
        torch.set_num_threads(3)
        assert all(map(torch.equal, run(slice(None), slice(None)), together))
    finally:
        torch.set_num_threads(threads)
    for image in range(6):
        rows = slice(5 * image, 5 * image + 5)
        alone = run(slice(image, image + 1), rows)
        assert torch.equal(alone[0], together[0][image : image + 1])
        assert all(torch.equal(one, other[rows]) for one, other in zip(alone[1:], together[1:], strict=True))


@needs_compiler
def test_float64_and_half_precision_are_left_to_torch():
    for dtype in (torch.float64, torch.bfloat16):
        assert not compiled.fits(torch.zeros(2, dtype=dtype))
    with compiled_kernels(False):
        assert not compiled.fits(torch.zeros(2))
    assert compiled.fits(torch.zeros(2))


CHECK = """
import sys, torch
from showtell.models.kernels import additive_scores, compiled
print(compiled.why_not())
scores = additive_scores(torch.ones(1, 2, 3), torch.ones(1, 1, 3), torch.ones(3))
assert torch.allclose(scores, 3 * torch.tanh(torch.tensor(2.0)))
"""


def why_not_where(cache: Path, **environment: str) -> str:
    """What a fresh process with these variables says; its scores are right either way."""
    variables = {**os.environ, "SHOWTELL_CACHE": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", CHECK], env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_a_compiler_torch_computes(tmp_path):
    assert why_not_where(tmp_path, PATH="", CXX="") == (
        "there is no C++ compiler; install g++ or clang++, or name one in CXX"
    )


def test_a_compiler_that_fails_is_named_with_what_it_said(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no such target' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert why_not_where(tmp_path, CXX=str(broken)) == f"{broken} does not compile them: no such target"


@needs_compiler
def test_the_library_is_kept_and_a_damaged_one_is_made_again(tmp_path):
    assert why_not_where(tmp_path / "cache") == "None"
    (kept,) = (tmp_path / "cache").iterdir()
    before = kept.stat().st_mtime_ns
    assert why_not_where(tmp_path / "cache") == "None" and kept.stat().st_mtime_ns == before
    kept.write_bytes(b"damaged")
    assert why_not_where(tmp_path / "cache") == "None" and kept.stat().st_size > 1000


@needs_compiler
def test_where_nothing_can_be_kept_they_are_compiled_for_the_process(tmp_path):
    (tmp_path / "file").write_text("")
    assert why_not_where(tmp_path / "file" / "cache") == "None"


def test_a_recipe_that_requires_them_is_refused_where_there_is_none(monkeypatch, tiny_recipe, tmp_path):
    monkeypatch.setattr(compiled, "why_not", lambda: "there is no C++ compiler; install g++")
    tiny_recipe["training"]["compile"] = True
    with pytest.raises(RecipeError, match=r"training\.compile=true .* there is no C\+\+ compiler; install g\+\+; auto"):
        train(tiny_recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


@needs_compiler
@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.sampled_from([20.0, 42.9, 43.1, 60.0]), st.integers(0, 5))
def test_rows_whose_exponentials_are_no_float32_are_computed_sum_by_sum(size, far, seed):
    """tanh(p + q) where p and q are large and their sum is not, among rows where they are small."""
    p, q, w = (x.detach() for x in (numbers(2, 7, size, seed=seed), numbers(2, 3, size, seed=9), numbers(size, seed=8)))
    p[0, 2], q[0, 1], q[1, 2] = far + p[0, 2], q[0, 1] - far, q[1, 2] + far
    values = [p.requires_grad_(), q.requires_grad_(), w.requires_grad_()]
    assert_same(additive_scores, plain.additive_scores, values, atol=2e-5 * size)
