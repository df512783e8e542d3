"""Figure 3 of papers/000: above the subgoals along a caption, below them attention, a row for each segment."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from showtell.explanations.segments import segments
from showtell.reports.figure import HEADING, LETTER, TITLE, light_photo

from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

PANEL, COLUMNS = 0.9, 5  # inches that a panel is wide, and panels in a line: readable on a phone
GOALS = 1.7  # inches that the plot of the subgoals is high, with its words
GAP = 0.08  # inches between segments


def draw_segments(
    photo: Image.Image,
    boxes: Tensor,
    grid: tuple[int, int] | None,
    words: Sequence[str],
    attention: Tensor,
    goals: Tensor,
    title: str = "",
) -> Figure:
    """Draw subgoals over the words, and below them where the model looked, a row for each segment.

    The last panel of a segment is the first one of the next, as in papers/000, Figure 3, which has the subgoals on the
    left.

    Args:
        photo: upright.
        boxes: (R, 4) of the regions, in pixels of this photo.
        grid: (rows, columns) if the regions are a grid.
        words: T of them.
        attention: (T, R).
        goals: (T, G).
        title: of the figure (default: the caption).
    """
    parts = segments(goals.double().numpy())
    photo_height = PANEL * photo.height / photo.width
    width = COLUMNS * PANEL
    heading = textwrap.wrap(title or " ".join(words), width=round(width / LETTER))
    lines = [math.ceil((last - first + 1) / COLUMNS) for first, last in parts]
    height = len(heading) * HEADING + GOALS + sum(count * (photo_height + TITLE) + GAP for count in lines)
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(0.01, 1 - len(heading) * HEADING / 2 / height, "\n".join(heading), va="center", fontsize=9,
                weight="bold", parse_math=False)  # fmt: skip
    top = height - len(heading) * HEADING - GOALS
    plot = figure.add_axes((0.55 / width, (top + 0.6) / height, 1 - 0.65 / width, (GOALS - 0.7) / height))
    plot.plot(goals.numpy(), marker=".", linewidth=1)
    for first, _ in parts[1:]:
        plot.axvline(first, color="0.6", linestyle="--", linewidth=0.8)
    plot.set_xticks(range(len(words)), words, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
    plot.tick_params(labelsize=8)
    plot.set_ylabel("subgoal", fontsize=8)
    plot.spines[["top", "right"]].set_visible(False)
    for (first, last), count in zip(parts, lines, strict=True):
        for panel, word in enumerate(range(first, last + 1)):
            line, column = divmod(panel, COLUMNS)
            frame = column / COLUMNS + 0.02 / width, (top - (line + 1) * (photo_height + TITLE)) / height
            axes = figure.add_axes((*frame, (PANEL - 0.04) / width, (photo_height - 0.02) / height))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            light_photo(axes, photo, attention[word], boxes, grid)
            axes.set_title(words[word], fontsize=8, pad=2, parse_math=False)
        top -= count * (photo_height + TITLE) + GAP
    return figure
