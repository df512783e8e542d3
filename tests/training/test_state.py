"""The state of an optimiser: written, read and resumed from, whatever the order of the weights in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from showtell.training.optimizers import OPTIMIZERS, make_optimizer
from showtell.training.recipe import OptimizerConfig
from showtell.training.state import load_state, save_state


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_optimiser_resumes_with_the_same_bits(name: str, tmp_path: Path):
    """A weight whose channels come last in memory, as those of convolutions do, and a plain one."""

    def weights() -> list[nn.Parameter]:
        generator = torch.Generator().manual_seed(0)
        kernel = torch.randn(5, 4, 3, 3, generator=generator).to(memory_format=torch.channels_last)
        return [nn.Parameter(kernel), nn.Parameter(torch.randn(7, generator=generator))]

    def optimizer(of: list[nn.Parameter]) -> torch.optim.Optimizer:
        return make_optimizer(of, OptimizerConfig(name=name, weight_decay=0.1), 0.01)

    def walk(of: list[nn.Parameter], by: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            for weight in of:
                gradient = torch.randn(weight.shape, generator=torch.Generator().manual_seed(step))
                weight.grad = torch.empty_like(weight).copy_(gradient)
            by.step()

    whole, broken = weights(), weights()
    walk(whole, optimizer(whole), range(6))
    before = optimizer(broken)
    walk(broken, before, range(3))
    save_state(tmp_path, before, {"part": {"more": torch.arange(3)}}, {"count": 4})
    after = optimizer(broken)
    extra, numbers = load_state(tmp_path, after)
    walk(broken, after, range(3, 6))
    assert extra["part"]["more"].tolist() == [0, 1, 2]
    assert numbers["count"] == 4
    for one, other in zip(whole, broken, strict=True):
        assert torch.equal(one, other)
