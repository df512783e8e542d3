"""Gradients added up through shared memory: the mean, whatever the sizes, and torch's own way where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from showtell.training import shared_gradients
from tests.training import process_group

needs_memfd = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system has no memory without a name")


class Weights(nn.Module):
    """Weights whose gradients are given."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in sizes])

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([(w * g).sum() for w, g in zip(self.weights, gradients, strict=True)]).sum()


def gradients_of(rank: int, sizes: list[int]) -> list[torch.Tensor]:
    return [torch.randn(size, generator=torch.Generator().manual_seed(10 * rank + n)) for n, size in enumerate(sizes)]


def add_up(sizes: list[int], without: int | None, folder: Path) -> None:
    """In each process; one of them may have no memory to share."""
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])
    rank, processes = accelerator.process_index, accelerator.num_processes
    if rank == without:
        del os.memfd_create
    shared_gradients.PIECE = 100
    model = accelerator.prepare(Weights(sizes))
    assert shared_gradients.share_gradients(model, accelerator) is (without is None)
    expected = [sum(all_) / processes for all_ in zip(*(gradients_of(r, sizes) for r in range(processes)), strict=True)]
    for _ in range(3):  # after the first pass torch orders the buckets anew
        model(gradients_of(rank, sizes)).backward()
        for weight, gradient in zip(model.module.weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient)
        torch.save([weight.grad for weight in model.module.weights], folder / f"{rank}.pt")
        model.zero_grad()
    accelerator.end_training()


@needs_memfd
@pytest.mark.parametrize("without", [None, 1])
def test_all_processes_get_the_mean(without, tmp_path):
    sizes = [1, 2, 7, 100, 101, 1234]
    group = process_group.start(3, tmp_path / "said", add_up, sizes, without, tmp_path)
    assert process_group.end(group) == [0, 0, 0], (tmp_path / "said").read_text()[-3000:]
    first, *others = (torch.load(tmp_path / f"{rank}.pt") for rank in range(3))
    for other in others:
        for one, same in zip(first, other, strict=True):
            assert torch.equal(one, same)
