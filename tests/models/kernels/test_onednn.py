"""Packed weights give torch's results, and follow every change of the weight."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch import nn

from showtell.models.kernels import linear, onednn
from showtell.models.layers import Linear
from showtell.models.recurrent import LstmCell


@pytest.fixture(autouse=True)
def pack_small_weights(monkeypatch):
    monkeypatch.setattr(onednn, "MIN_PACKED_NUMEL", 1)
    monkeypatch.setattr(onednn, "PREFERS_DEFAULT", False)  # whatever processor this is


@pytest.fixture
def calls(monkeypatch):
    """The columns of every packed copy that is asked for."""
    asked = []
    original = onednn._packed
    monkeypatch.setattr(onednn, "_packed", lambda weight, *part: asked.append(part) or original(weight, *part))
    return asked


def close(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 6), (5, 6), (2, 3, 6), (0, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_is_torchs_layer(calls, shape, bias):
    torch.manual_seed(0)
    layer = Linear(6, 9, bias=bias)
    x = torch.randn(shape)
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    with torch.no_grad():
        close(layer(x), expected)
    assert calls == [(0, 6, False)]


def test_some_columns(calls):
    torch.manual_seed(0)
    weight, bias, x = nn.Parameter(torch.randn(9, 6)), torch.randn(9), torch.randn(4, 2)
    with torch.no_grad():
        for first in (0, 3, 4, 3):
            close(linear(x, weight, bias, offset=first), x @ weight[:, first : first + 2].T + bias)
    assert [part[:2] for part in calls] == [(0, 2), (3, 5), (4, 6), (3, 5)]


def test_a_packed_cell_is_torchs_cell(calls):
    torch.manual_seed(0)
    cell = LstmCell(5, 7)
    x, hidden, memory = torch.randn(2, 3, 5), torch.randn(2, 3, 7), torch.randn(2, 3, 7)
    kept = [part.clone() for part in (x, hidden, memory)]
    expected = nn.LSTMCell.forward(cell, x.flatten(0, 1), (hidden.flatten(0, 1), memory.flatten(0, 1)))
    with torch.no_grad():
        state = cell(cell.project_input(x), hidden, memory)
        close([part.flatten(0, 1) for part in state], list(expected))
    assert calls == [(0, 5, False), (0, 7, False)]
    assert all(torch.equal(one, other) for one, other in zip((x, hidden, memory), kept, strict=True))


def optimise(layer):
    layer(torch.ones(1, 6)).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1).step()


def optimise_fused(layer):
    layer(torch.ones(1, 6)).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1, fused=True).step()


def load(layer):
    layer.load_state_dict(Linear(6, 9).state_dict())


def copy_in_inference_mode(layer):
    with torch.inference_mode():
        layer.weight.copy_(torch.ones(9, 6))


def initialise(layer):
    nn.init.xavier_uniform_(layer.weight)


def there_and_back(layer):
    layer.double()
    with torch.no_grad():
        layer.weight.mul_(2)
    layer.float()


def new_data(layer):
    layer.weight.data = torch.randn(9, 6)


def new_parameter(layer):
    layer.weight = nn.Parameter(torch.randn(9, 6))


@pytest.mark.parametrize(
    "change",
    [optimise, optimise_fused, load, copy_in_inference_mode, initialise, there_and_back, new_data, new_parameter],
)
def test_the_copy_follows_the_weight(change):
    torch.manual_seed(0)
    layer, x = Linear(6, 9), torch.randn(4, 6)
    with torch.no_grad():
        before = layer(x)
    change(layer)
    with torch.no_grad():
        after = layer(x)
        close(after, nn.functional.linear(x, layer.weight, layer.bias))
    assert float((after - before).abs().max()) > 0.01


def test_an_unchanged_weight_is_packed_once(monkeypatch):
    layer, made = Linear(6, 9), []
    original = torch.ops.mkldnn._reorder_linear_weight
    monkeypatch.setattr(
        torch.ops.mkldnn, "_reorder_linear_weight", lambda *arguments: made.append(1) or original(*arguments)
    )
    with torch.no_grad():
        for rows in (1, 5, 3):
            layer(torch.randn(rows, 6))
    assert len(made) == 1


def test_with_gradients_under_autocast_and_for_small_or_double_weights_it_is_torchs_layer(calls, monkeypatch):
    layer, x = Linear(6, 9), torch.randn(4, 6)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        Linear(6, 9).double()(x.double())
        monkeypatch.setattr(onednn, "MIN_PACKED_NUMEL", 55)
        layer(x)
    with torch.inference_mode():
        Linear(6, 9)(x)
    assert calls == []


def test_16_bits_are_packed_where_the_processor_has_them(calls):
    torch.manual_seed(0)
    layer, x = Linear(64, 32).bfloat16(), torch.randn(4, 64).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias), atol=0.02, rtol=0.02)
    assert bool(calls) == torch.ops.mkldnn._is_mkldnn_bf16_supported()


def test_layers_can_be_copied_and_saved_and_a_copy_dies_with_its_weight(tmp_path):
    layer, x = Linear(6, 9), torch.randn(4, 6)
    gc.collect()
    alive = len(onednn._packed_copies)
    with torch.no_grad():
        output = layer(x)
        other = copy.deepcopy(layer)
        assert set(layer.state_dict()) == {"weight", "bias"}
        close(other(x), output)
    assert len(onednn._packed_copies) == alive + 2
    del layer, other
    gc.collect()
    assert len(onednn._packed_copies) == alive
