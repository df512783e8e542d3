from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.decoding.ranking import stable_topk


def plain(scores: torch.Tensor, k: int) -> list[list[int]]:
    return [sorted(range(len(row)), key=lambda index: (-row[index], index))[:k] for row in scores.tolist()]


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 3000), k=st.integers(1, 12), levels=st.sampled_from([2, 5, 50, 10**6]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_the_best_are_those_of_sorting_with_ties_to_the_lower_index(size, k, levels, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.randint(-levels, levels, (3, size), generator=generator) / 7).float()
    scores[:, ::5] = float("-inf")
    k = min(k, size)
    values, indices = stable_topk(scores, k)
    assert indices.tolist() == plain(scores, k)
    assert torch.equal(values, scores.gather(-1, indices))
