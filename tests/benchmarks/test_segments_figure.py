"""Figure 3 of papers/000: subgoals over the words, and a row of panels for each segment."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from segments_figure import draw_segments
from showtell.reports.figure import DARK

QUARTERS = torch.tensor([[0.0, 0, 40, 20], [40, 0, 80, 20], [0, 20, 40, 40], [40, 20, 80, 40]])


def brightness(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())[..., 0]


def test_segments_are_rows_that_share_their_border():
    goals = torch.tensor([[0.0, 1], [1, 2], [2, 3], [1, 2], [0, 1]])  # both turn at the third word
    attention = torch.eye(4)[[0, 0, 3, 3, 1]]
    photo = Image.new("RGB", (80, 40), "white")
    words = ["a", "red", "star", "above", "$it$"]
    plot, *panels = draw_segments(photo, QUARTERS, (2, 2), words, attention, goals).axes
    lines = [line for line in plot.lines if len(line.get_xdata()) == 5]
    assert [line.get_ydata().tolist() for line in lines] == goals.T.tolist()
    (border,) = (line for line in plot.lines if len(line.get_xdata()) == 2)
    assert border.get_xdata() == [2, 2]
    assert [label.get_text() for label in plot.get_xticklabels()] == words
    assert [axes.get_title() for axes in panels] == ["a", "red", "star", "star", "above", "$it$"]
    assert panels[0].get_position().y0 == panels[2].get_position().y0 > panels[3].get_position().y1
    assert plot.get_position().y0 > panels[0].get_position().y1
    np.testing.assert_array_equal(brightness(panels[2]), brightness(panels[3]))
    assert brightness(panels[2])[-1, -1] == pytest.approx(1, abs=1e-3)
    assert min(axes.get_position().y0 for axes in panels) >= 0
    assert max(axes.get_position().x1 for axes in panels) <= 1


def test_one_segment_of_regions_is_one_row():
    goals = torch.tensor([[0.0], [1], [2]])
    photo = Image.new("RGB", (80, 40), "white")
    _, *panels = draw_segments(photo, QUARTERS, None, ["a", "b", "c"], torch.eye(4)[:3], goals, title="own").axes
    assert len({axes.get_position().y0 for axes in panels}) == 1
    assert brightness(panels[1])[0, [0, 79]] == pytest.approx([DARK, 1])
