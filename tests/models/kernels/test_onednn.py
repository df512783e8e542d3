"""Packed weights give torch's results, and follow every change of the weight."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.functional import linear as torchs_linear

from showtell.models.kernels import linear, onednn
from showtell.models.layers import Linear


@pytest.fixture
def calls(monkeypatch):
    """The columns of every packed copy that is asked for."""
    asked = []
    original = onednn._packed
    monkeypatch.setattr(onednn, "_packed", lambda weight, *part: asked.append(part) or original(weight, *part))
    return asked


def close(one, other):
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_packed_layer_is_torchs_layer(calls):
    for bias in (True, False):
        layer = Linear(6, 9, bias=bias)
        for shape in ((1, 6), (5, 6), (2, 3, 6), (0, 6)):
            x = torch.randn(shape)
            with torch.no_grad():
                close(layer(x), torchs_linear(x, layer.weight, layer.bias))
    assert set(calls) == {(0, 6)}
    weight, bias, x = nn.Parameter(torch.randn(9, 6)), torch.randn(9), torch.randn(4, 2)
    with torch.no_grad():
        for first in (0, 3, 4, 3):
            close(linear(x, weight, bias, offset=first), x @ weight[:, first : first + 2].T + bias)
    assert calls[-4:] == [(0, 2), (3, 5), (4, 6), (3, 5)]


def optimise(layer: Linear, fused: bool = False) -> None:
    layer(torch.ones(1, 6)).sum().backward()
    torch.optim.Adam(layer.parameters(), lr=0.1, fused=fused).step()


def copy_in_inference_mode(layer: Linear) -> None:
    with torch.inference_mode():
        layer.weight.copy_(torch.ones(9, 6))


def there_and_back(layer: Linear) -> None:
    layer.double()
    with torch.no_grad():
        layer.weight.mul_(2)
    layer.float()


def new_data(layer: Linear) -> None:
    layer.weight.data = torch.randn(9, 6)


CHANGES: dict[str, Callable[[Linear], object]] = {
    "optimise": optimise,
    "optimise fused": lambda layer: optimise(layer, fused=True),
    "load": lambda layer: layer.load_state_dict(Linear(6, 9).state_dict()),
    "copy in inference mode": copy_in_inference_mode,
    "initialise": lambda layer: nn.init.xavier_uniform_(layer.weight),
    "there and back": there_and_back,
    "new data": new_data,
    "new parameter": lambda layer: layer.register_parameter("weight", nn.Parameter(torch.randn(9, 6))),
}


def test_the_copy_follows_the_weight():
    for name, change in CHANGES.items():
        torch.manual_seed(0)
        layer, x = Linear(6, 9), torch.randn(4, 6)
        with torch.no_grad():
            before = layer(x)
        change(layer)
        with torch.no_grad():
            after = layer(x)
            close(after, torchs_linear(x, layer.weight, layer.bias))
        assert float((after - before).abs().max()) > 0.01, name


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
