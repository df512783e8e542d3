"""Figure 3 of papers/000: on the left the subgoals of a caption, on the right attention, a row for each segment."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from showtell.explanations.segments import segments
from showtell.reports.figure import HEADING, MARGIN, PANEL, TITLE, light_photo


def draw_segments(
    photo: Image.Image,
    boxes: Tensor,
    grid: tuple[int, int] | None,
    words: Sequence[str],
    attention: Tensor,
    goals: Tensor,
    title: str = "",
) -> Figure:
    """Draw subgoals over the words, and beside them where the model looked, a row for each segment.

    The last panel of a segment is the first one of the next, as in papers/000, Figure 3.

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
    across = max(last - first + 1 for first, last in parts)
    photo_height = PANEL * photo.height / photo.width
    left = max(3.0, 0.35 * len(words))  # inches for the subgoals
    width, height = left + across * PANEL + MARGIN, max(2.2, len(parts) * (photo_height + TITLE)) + HEADING
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(0.01, 1 - HEADING / 2 / height, title or " ".join(words), va="center", fontsize=9, weight="bold",
                parse_math=False)  # fmt: skip
    tall = min(3.5, height - HEADING - 0.85)  # inches that the lines are high
    plot = figure.add_axes(
        (0.6 / width, (height - HEADING - 0.1 - tall) / height, (left - 0.75) / width, tall / height)
    )
    plot.plot(goals.numpy(), marker=".", linewidth=1)
    for first, _ in parts[1:]:
        plot.axvline(first, color="0.6", linestyle="--", linewidth=0.8)
    plot.set_xticks(range(len(words)), words, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    plot.tick_params(labelsize=7)
    plot.set_ylabel("subgoal", fontsize=8)
    plot.spines[["top", "right"]].set_visible(False)
    for row, (first, last) in enumerate(parts):
        bottom = height - HEADING - (row + 1) * (photo_height + TITLE)
        for column, word in enumerate(range(first, last + 1)):
            frame = (left + column * PANEL) / width, bottom / height
            axes = figure.add_axes((*frame, (PANEL - 0.06) / width, (photo_height - 0.04) / height))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            light_photo(axes, photo, attention[word], boxes, grid)
            axes.set_title(words[word], fontsize=8, pad=2, parse_math=False)
    return figure
