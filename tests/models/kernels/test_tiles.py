"""Additive attention in tiles against the formula written out, and the memory that it needs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.models.attention import AdditiveAttention, masked_softmax
from showtell.models.kernels import ACTIVATIONS, gathered_gradients, tiles
from showtell.models.kernels.plain import additive_scores as plain_scores
from showtell.models.kernels.tiles import TiledScores

every_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def inputs(images=3, rows=4, regions=5, size=6, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((images, regions, size), (images, rows, size), (size,))
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@every_activation
@pytest.mark.parametrize("tile", [1, 31, 60, 130, 250, 10**6])  # part of a row, a row, two rows, an image, two, all
def test_the_gradients_of_tiles_are_those_of_finite_differences(monkeypatch, tile, activation):
    monkeypatch.setattr(tiles, "TILE", tile)
    assert torch.autograd.gradcheck(lambda *x: TiledScores.apply(*x, None, ACTIVATIONS[activation]), inputs())


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(1, 7), st.integers(1, 400), st.integers(0, 9),
    st.sampled_from(sorted(ACTIVATIONS)),
)  # fmt: skip
def test_tiles_of_any_size_give_the_plain_scores_and_gradients(images, rows, regions, size, tile, seed, name):
    activation = ACTIVATIONS[name]
    values = inputs(images, rows, regions, size, seed=seed)
    weights = torch.randn(images, rows, regions, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    plain = plain_scores(*values, activation)
    expected = torch.autograd.grad((plain * weights).sum(), values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        tiled = TiledScores.apply(*values, None, activation)
        tiled_gradients = torch.autograd.grad((tiled * weights).sum(), values)
    torch.testing.assert_close(tiled, plain)
    torch.testing.assert_close(tiled_gradients, expected)


def test_at_the_sizes_of_the_papers_float32_is_as_close_to_the_truth_as_the_plain_form():
    values = inputs(images=2, rows=3, regions=196, size=512, dtype=torch.float32)
    values = [value.detach() for value in values]
    truth = plain_scores(*(value.double() for value in values))
    tiled, plain = (float((form(*values) - truth).abs().max()) for form in (TiledScores.apply, plain_scores))
    assert tiled < 2 * plain < 1e-4  # scores have a deviation of 14


def test_large_arguments_saturate():
    far = torch.tensor([[[80.0, -80.0, 1e30, -1e30]]])
    scores = TiledScores.apply(far, torch.zeros(1, 1, 4), torch.tensor([1.0, 10.0, 100.0, 1000.0]))
    assert scores.item() == 1 - 10 + 100 - 1000


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_16_bits_are_computed_with_in_float32(dtype):
    values = [value.detach().to(dtype).requires_grad_() for value in inputs(regions=9, size=64, dtype=torch.float32)]
    wide = [value.detach().float().requires_grad_() for value in values]
    narrow_scores, wide_scores = TiledScores.apply(*values), plain_scores(*wide)
    torch.testing.assert_close(narrow_scores, wide_scores.to(dtype))
    narrow_gradients = torch.autograd.grad(narrow_scores.sum(), values)
    expected = torch.autograd.grad(wide_scores.sum(), wide)
    for one, other in zip(narrow_gradients, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other.to(dtype), rtol=0.02, atol=0.02)


def test_under_autocast_it_takes_and_gives_what_the_plain_form_does():
    torch.manual_seed(0)
    module = AdditiveAttention(feature_size=5, query_size=7, attention_size=8)
    vectors, query, is_region = torch.randn(2, 6, 5), torch.randn(2, 3, 7), torch.ones(2, 6, dtype=torch.bool)
    exact = module(query, module.project(vectors), is_region)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        projected = module.project(vectors)
        alpha = module(query, projected, is_region)
        plain = masked_softmax(plain_scores(projected, module.of_query(query), module.score.weight[0]), is_region)
        loss = (alpha * torch.arange(6)).sum()
    loss.backward()
    assert alpha.dtype == plain.dtype
    torch.testing.assert_close(alpha.float(), exact, atol=0.02, rtol=0.05)
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in module.parameters()
    )


def test_alpha_and_its_gradients_are_those_of_the_plain_form_where_regions_are_missing():
    torch.manual_seed(0)
    module = AdditiveAttention(feature_size=5, query_size=7, attention_size=8).double()
    projected = module.project(torch.randn(2, 6, 5, dtype=torch.float64)).detach().requires_grad_()
    query = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    is_region = torch.tensor([[True] * 6, [True, False, True, False, False, True]])
    values = (projected, query, *(parameter for parameter in (module.of_query.weight, module.score.weight)))
    alpha = module(query, projected, is_region)
    plain = masked_softmax(plain_scores(projected, module.of_query(query), module.score.weight[0]), is_region)
    torch.testing.assert_close(alpha, plain)
    for one, other in zip(
        torch.autograd.grad(alpha.square().sum(), values),
        torch.autograd.grad(plain.square().sum(), values),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@every_activation
def test_a_walk_gathers_the_gradients_of_what_its_steps_share(activation):
    torch.manual_seed(0)
    module = AdditiveAttention(feature_size=5, query_size=7, attention_size=8, activation=activation).double()
    projected = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    queries = [torch.randn(2, 3, 7, dtype=torch.float64) for _ in range(3)]
    weights = torch.randn(2, 3, 6, dtype=torch.float64)

    def gradients(scores):
        total = sum((scores(query) * weights).sum() for query in queries)
        return torch.autograd.grad(total, (projected, *module.of_query.parameters(), module.score.weight))

    plain = gradients(
        lambda query: plain_scores(projected, module.of_query(query), module.score.weight, module.activation)
    )
    with gathered_gradients():
        tiled_gradients = gradients(lambda query: module.scores(query, projected))
    torch.testing.assert_close(tiled_gradients, plain)


class _Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Keeps the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, torch.Tensor):
                self.numbers = max(self.numbers, value.numel())
        return result


def test_no_tensor_grows_with_rows_times_regions_times_attention(monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 2000)
    values = inputs(images=3, rows=40, regions=10, size=20)
    with _Largest() as largest:
        TiledScores.apply(*values).sum().backward()
    assert largest.numbers == 2400  # the query, 3 x 40 x 20; the plain form has 24,000
    with _Largest() as largest:
        plain_scores(*values).sum().backward()
    assert largest.numbers == 24000
