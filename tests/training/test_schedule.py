import math
from pathlib import Path

import pytest
import torch
from torch import nn

from showtell.training.optimizers import OPTIMIZERS, make_optimizer
from showtell.training.recipe import OptimizerConfig
from showtell.training.schedule import learning_rate_factor
from showtell.training.state import load_state, save_state


def test_eight_steps_of_which_four_warm_up_and_none():
    for kind, expected in (
        ("constant", [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.25, 0.5, 0.75, 1.0, 1.0, *[0.5 + 0.5 * math.cos(math.pi * k / 4) for k in (1, 2, 3)]]),
    ):
        assert [learning_rate_factor(step, 8, 4, kind) for step in range(8)] == pytest.approx(expected), kind
    assert learning_rate_factor(0, 10, 0, "cosine") == 1.0


def test_the_inverse_root_is_that_of_the_transformer():
    """min(n^-0.5, n warmup^-1.5) d^-0.5 at the n-th step (Vaswani et al., 2017, eq. 3)."""
    warmup, size = 5, 16
    top = (size * warmup) ** -0.5
    rates = [top * learning_rate_factor(step, 12, warmup, "inverse_sqrt") for step in range(12)]
    assert rates == pytest.approx([size**-0.5 * min(n**-0.5, n * warmup**-1.5) for n in range(1, 13)])
    assert [learning_rate_factor(step, 9, 0, "inverse_sqrt") for step in (0, 3)] == pytest.approx([1.0, 0.5])


def test_a_stair_falls_every_few_steps_counted_from_the_beginning():
    """Adam's 5e-4 times 0.8 every 3 epochs, here of two steps each, after a warm-up of one."""
    rates = [5e-4 * learning_rate_factor(step, 18, 1, "step", decay_steps=6, decay_factor=0.8) for step in range(18)]
    assert rates == pytest.approx([5e-4] * 6 + [4e-4] * 6 + [3.2e-4] * 6)
    slowly = [learning_rate_factor(step, 18, 4, "step", decay_steps=6, decay_factor=0.5) for step in range(8)]
    assert slowly == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 0.5, 0.5])


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
    assert all(map(torch.equal, whole, broken))
