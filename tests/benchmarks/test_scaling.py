"""The benchmark of two processes runs, and its rows fit each other."""

from __future__ import annotations

import pytest

import scaling

TINY = [
    f"model.{size}=8" for size in ("embedding_size", "hidden_size", "attention_size")
]  # of Up-Down, with 36 regions of 2,048 and 10,000 words


@pytest.mark.slow
@pytest.mark.timeout(900)  # four processes import torch
def test_rows_fit_each_other():
    rows = {row["name"]: row for row in scaling.rows_of(scaling.RECIPES[0], TINY, rounds=1, seconds=0)}
    assert {name.removeprefix("cross_entropy_") for name in rows} == {
        "two_processes", "two_threads", "communication", "largest_share", "foretold", "validation_idle", "memory",
        "start",
    }  # fmt: skip
    one = rows["cross_entropy_two_processes"]
    seconds = one["seconds"]
    assert one["captions"] == 100  # 20 images
    assert one["value"] == pytest.approx(100 / seconds["two"])
    assert one["ratio"] == pytest.approx(seconds["one"] / seconds["two"])
    # LSTMs of 8 that read 8 + 2,048 + 8 and 2,048 + 8 numbers, attention of 8, embedding and readout of 10,004 words.
    lstms = sum(4 * 8 * (inputs + 8) + 2 * 4 * 8 for inputs in (8 + 2048 + 8, 2048 + 8))
    assert rows["cross_entropy_communication"]["value"] * 1e6 / 4 == pytest.approx(
        lstms + 8 * (2048 + 8 + 1) + 10_004 * (8 + 8 + 1), rel=0.001
    )
    assert 50 <= rows["cross_entropy_largest_share"]["value"] < 70
    assert 0 <= rows["cross_entropy_validation_idle"]["ratio"] < 1
