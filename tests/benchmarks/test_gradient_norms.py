"""Tables and figure of gradient norms, from profiles with known shares."""

from __future__ import annotations

from typing import Any

import pytest

from gradient_norms import LAST_LOSS, MAX_BACK, ROWS, WHEN, draw, losses_of, mean_over, ratios, shares, tables
from showtell.training import make_recipe
from study import Bench


def profile(factor: float, *tops: float, cell: bool = False) -> dict[str, Any]:
    """A gradient that shrinks by a factor at each step back, from `tops` at the last step of each vector."""
    last = {f"hidden.{n}": [top * factor**back for back in range(12)] for n, top in enumerate(tops)}
    if cell:
        last["cell.0"] = [0.5 * 0.9**back for back in range(12)]
    return {"last": last, "whole": {name: [values[0]] for name, values in last.items()}}


LINES = [
    {"name": "nic_rnn", "says": "plain RNN", "start": profile(0.5, 2.0), "end": profile(0.8, 2.0)},
    {"name": "nic_lstm", "says": "LSTM", "start": profile(0.5, 2.0, cell=True), "end": profile(0.8, 2.0, cell=True)},
    {"name": "nic_lstm3", "says": "LSTM of 3 layers", "start": profile(0.5, 0.1, 0.4, 1), "end": profile(0.5, 1, 1, 1)},
    {"name": "stack", "says": "stack", "start": profile(0.5, 1, 1, 2), "end": profile(0.5, 1, 1, 4)},
    {"name": "stack_last_loss", "says": "alone", "start": profile(0.5, 0.01, 0.1, 2), "end": profile(0.5, 1, 1, 4)},
]


def test_shares_are_of_the_last_step_of_the_top():
    assert shares(LINES[0], "start", "hidden.0")[:3] == [1, 0.5, 0.25]
    assert shares(LINES[2], "start", "hidden.0")[:2] == pytest.approx([0.1, 0.05])
    assert shares(LINES[1], "end", "cell.0")[1] == pytest.approx(0.9)


def test_the_tables_have_every_vector_before_and_after_training():
    through_time, through_stages = tables(LINES).split("Of the whole loss")
    assert "| plain RNN | before training | 1 | 0.5 | 0.25 | 0.062 | 0.016 | 0.0039 |" in through_time
    assert "| LSTM: cell vector | after | 1 | 0.9 | 0.81 | 0.66 | 0.53 | 0.43 |" in through_time
    assert "| LSTM of 3 layers: layer 1 | before training | 0.1 |" in through_time
    assert "| stack: stage 2 | after | 1 | 0.5 |" in through_time
    assert "| alone | before training | 0.010 | 0.100 | 2.000 | 0.005 |" in through_stages
    assert "plain RNN" not in through_stages


def test_json_has_the_share_after_eight_steps():
    of_rnn = {line["name"]: line["ratio"] for line in ratios(LINES[:1])}
    assert of_rnn == {"nic_rnn_hidden.0_start": 0.5**8, "nic_rnn_hidden.0_end": pytest.approx(0.8**8)}


def test_the_figure_has_cells_above_stages_below_and_training_from_left_to_right():
    axes = draw(LINES).axes
    assert [one.get_title() for one in axes[:2]] == list(WHEN.values())
    lines = {line.get_label(): list(line.get_ydata()) for line in axes[0].lines}
    assert lines["plain RNN"] == [0.5**back for back in range(MAX_BACK + 1)]
    assert {"its cell vector", "its lowest layer"} <= lines.keys()
    assert [len(one.lines) for one in axes] == [5, 5, 6, 6, 2, 2]
    assert list(axes[4].lines[1].get_ydata()) == [0.01, 0.1, 2]


def test_means_over_seeds():
    assert mean_over([{"a": {"b": [1, 2, 3]}}, {"a": {"b": [3, 4]}}]) == {"a": {"b": [2, 3]}}


def test_every_row_is_a_recipe_and_one_of_them_has_the_loss_of_the_last_stage_alone(tmp_path):
    for row in ROWS:
        recipe = make_recipe(Bench(tmp_path, frozen_epochs=2).recipe(row, 0, row.rate))
        assert recipe.training.epochs == 2
        assert (losses_of(row) == [0, 0, 1]) == (LAST_LOSS in row.changes) == (row.name == "stack_last_loss")
