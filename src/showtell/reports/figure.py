"""An explanation as a figure for papers: the photo, and beside it once for each word, lit where the word looked.

A row for each caption, as in the figures of papers/003 and papers/002; several captioners and several stages are rows
below each other. Grids light the photo by their map, the brightest pixel of a word at full brightness; regions light
their boxes by their weights, the heavier one where they overlap, and the heaviest has its outline and its class. A
cross marks the place that hard attention looked at. Below a caption are the numbers that its model has along it, such
as a gate or subgoals, as lines. Where nothing attends, the words stand beside the photo.

`draw_segments` is Figure 3 of papers/000: on the left the subgoals, on the right attention, a row for each segment.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from showtell.explanations.explanation import ExplainedBy, ExplainedCaption, ExplainedWord, Explanation, Strip
from showtell.explanations.geometry import Floats, attention_map, scaled
from showtell.explanations.segments import segments

LEAST, ACROSS = 4, 9  # panels that a line has room for; longer captions are wrapped
PANEL = 1.5  # inches that a panel is wide
STRIP, MARGIN = 0.9, 0.55  # inches that a strip of numbers is high, its words included, and that it keeps free beside
TITLE, HEADING = 0.2, 0.25  # inches above a panel for its word, and above a row for its caption
PIXELS = 320  # of a panel's longer side
DARK = 0.2  # of a photo's brightness is left where a word did not look
SOFTWARE = "showtell explain"  # in the PNG files
MARK, RED = "#e8710a", "#b3261e"  # of places and boxes, and of words that name what is not there


def draw(explanation: Explanation) -> Figure:
    """The figure; see the head of this file."""
    photo = explanation.photo.copy()
    photo.thumbnail((PIXELS, PIXELS))
    rows = [(by, caption) for by in explanation.by for caption in by.captions]
    panels = [1 + (len(caption.words) if caption.attention is not None else 0) for _, caption in rows]
    across = min(ACROSS, max(LEAST, *panels))
    tall = PANEL * photo.height / photo.width
    lines = [math.ceil(count / across) for count in panels]
    width, height = (
        across * PANEL,
        sum(
            HEADING + count * (TITLE + tall) + len(caption.strips) * STRIP
            for (_, caption), count in zip(rows, lines, strict=True)
        ),
    )
    figure = Figure(figsize=(width, height), facecolor="white")
    top = height
    for (by, caption), count in zip(rows, lines, strict=True):
        _write(figure, by, caption, (top - HEADING / 2) / height, several=len(rows) > 1)
        top -= HEADING
        for panel in range(1 + (0 if caption.attention is None else len(caption.words))):
            line, column = divmod(panel, across)
            bottom = top - (line + 1) * (TITLE + tall)
            axes = figure.add_axes(
                (column / across + 0.02 / width, bottom / height, (PANEL - 0.04) / width, (tall - 0.02) / height)
            )
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            if panel == 0:
                axes.imshow(np.asarray(photo), aspect="auto")
            else:
                _panel(axes, photo, explanation.size, by, caption, panel - 1)
        if caption.attention is None:
            said = "   ".join(_said(word).replace(" ", "\N{NO-BREAK SPACE}") for word in caption.words)
            said = textwrap.fill(said, width=round(13 * (across - 1)))
            place = ((PANEL + 0.1) / width, (top - TITLE) / height)
            figure.text(*place, said, va="top", fontsize=8, linespacing=1.6, parse_math=False)
        top -= count * (TITLE + tall)
        for strip in caption.strips:
            top -= STRIP
            frame = (MARGIN / width, (top + 0.3) / height, 1 - 2 * MARGIN / width, (STRIP - 0.4) / height)
            _lines(figure.add_axes(frame), strip, caption)
    return figure


def to_png(explanation: Explanation, dots: int = 150) -> bytes:
    """The figure as the content of a PNG file, with so many dots per inch, and a mark that it is one."""
    stream = io.BytesIO()
    draw(explanation).savefig(stream, format="png", dpi=dots, metadata={"Software": SOFTWARE})
    return stream.getvalue()


def is_foreign_picture(file: Path) -> bool:
    """Whether a file is an image, and none that `to_png` made: somebody's photo, which no figure should replace."""
    try:
        with Image.open(file) as image:
            return image.info.get("Software") != SOFTWARE
    except (OSError, ValueError):  # there is none, or it is no image
        return False


def _write(figure: Figure, by: ExplainedBy, caption: ExplainedCaption, height: float, several: bool) -> None:
    """The caption above its row, after what said it where there are several."""
    who = ", ".join(part for part in (by.model, caption.title) if part) if several else caption.title
    text = f"{who}: {caption.text}" if who else caption.text
    figure.text(0.01, height, text, va="center", fontsize=9, weight="bold", parse_math=False)


def _panel(
    axes: Axes, photo: Image.Image, size: tuple[int, int], by: ExplainedBy, caption: ExplainedCaption, word: int
) -> None:
    """One word: where it looked, under the word itself and its probability."""
    assert caption.attention is not None
    boxes = scaled(by.boxes, size, photo.size)
    weights = caption.attention[word]
    _lit(axes, photo, weights, boxes, by.grid)
    if by.grid is None:
        _outline(axes, boxes, int(weights.argmax()), by.labels)
    said = caption.words[word]
    if said.place is not None:
        left, top, right, bottom = boxes[said.place].tolist()
        axes.plot((left + right) / 2, (top + bottom) / 2, "+", color=MARK, markersize=10, markeredgewidth=1.5)
    axes.set_title(_said(said), fontsize=8, pad=2, color="black" if said.absent is None else RED, parse_math=False)


def _lit(axes: Axes, photo: Image.Image, weights: Tensor, boxes: Tensor, grid: tuple[int, int] | None) -> None:
    """The photo, bright where the weights (R,) of its places (R, 4) are."""
    if grid is None:
        light = _light_of_regions(boxes, weights, photo.size)
    else:
        light = attention_map(weights, boxes, photo.size, grid=grid, style="smooth")
    bright = np.asarray(photo, dtype=np.float64) / 255
    axes.imshow(bright * np.minimum(DARK + (1 - DARK) * light / light.max(), 1)[..., None], aspect="auto")


def draw_segments(
    photo: Image.Image,
    boxes: Tensor,
    grid: tuple[int, int] | None,
    words: Sequence[str],
    attention: Tensor,
    goals: Tensor,
    title: str = "",
) -> Figure:
    """Subgoals along a caption, and beside them where each word looked, a row for each segment (`segments.segments`).

    The last picture of a segment is the first one of the next, as in papers/000, Figure 3.

    Args:
        photo: upright.
        boxes: (R, 4) of the places, in pixels of this photo.
        grid: (rows, columns) where the places are a grid.
        words: T of them.
        attention: (T, R).
        goals: (T, G).
        title: above all; none: the caption.
    """
    found = segments(goals.double().numpy())
    across = max(last - first + 1 for first, last in found)
    photo_height = PANEL * photo.height / photo.width
    left = max(3.0, 0.35 * len(words))  # inches for the subgoals
    width, height = left + across * PANEL + MARGIN, max(2.2, len(found) * (photo_height + TITLE)) + HEADING
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.text(0.01, 1 - HEADING / 2 / height, title or " ".join(words), va="center", fontsize=9, weight="bold",
                parse_math=False)  # fmt: skip
    tall = min(3.5, height - HEADING - 0.85)  # inches that the lines are high
    plot = figure.add_axes(
        (0.6 / width, (height - HEADING - 0.1 - tall) / height, (left - 0.75) / width, tall / height)
    )
    plot.plot(goals.numpy(), marker=".", linewidth=1)
    for first, _ in found[1:]:
        plot.axvline(first, color="0.6", linestyle="--", linewidth=0.8)
    plot.set_xticks(range(len(words)), words, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    plot.tick_params(labelsize=7)
    plot.set_ylabel("subgoal", fontsize=8)
    plot.spines[["top", "right"]].set_visible(False)
    for row, (first, last) in enumerate(found):
        bottom = height - HEADING - (row + 1) * (photo_height + TITLE)
        for column, word in enumerate(range(first, last + 1)):
            frame = (left + column * PANEL) / width, bottom / height
            axes = figure.add_axes((*frame, (PANEL - 0.06) / width, (photo_height - 0.04) / height))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            _lit(axes, photo, attention[word], boxes, grid)
            axes.set_title(words[word], fontsize=8, pad=2, parse_math=False)
    return figure


def _said(word: ExplainedWord) -> str:
    return f"{word.word or '(end)'} {word.probability:.0%}"


def _lines(axes: Axes, strip: Strip, caption: ExplainedCaption) -> None:
    """The numbers of a strip over the words, a line for each of the K."""
    axes.plot(strip.values.numpy(), marker=".", linewidth=1)
    axes.set_xticks(range(len(caption.words)), [word.word or "(end)" for word in caption.words], parse_math=False)
    axes.tick_params(labelsize=7)
    axes.set_ylabel(strip.title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _light_of_regions(boxes: Tensor, weights: Tensor, size: tuple[int, int]) -> Floats:
    """The greatest weight of a box over each pixel, (height, width)."""
    light = np.zeros(size[::-1])
    for region in weights.argsort().tolist():
        left, top, right, bottom = (round(edge) for edge in boxes[region].tolist())
        light[max(0, top) : max(bottom, top + 1), max(0, left) : max(right, left + 1)] = float(weights[region])
    return light


def _outline(axes: Axes, boxes: Tensor, region: int, labels: tuple[str, ...] | None) -> None:
    """The box of a region, and what the encoder takes it for."""
    left, top, right, bottom = boxes[region].tolist()
    axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=MARK, linewidth=1.2))
    if labels is not None and labels[region]:
        axes.text(left, top, labels[region], fontsize=6, color="black", va="top", parse_math=False,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
