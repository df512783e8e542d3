"""An explanation as a matplotlib figure: the photo, and beside it a panel for each word, bright where the model looked.

Each caption, of a captioner or a stage, is a row, as in the figures of Xu et al. 2015 and Gu et al. 2018. Grids light
the photo by their map, with a contour at half of its maximum; detected regions light their boxes by their weights, and
the heaviest has its outline and its class. A cross marks the region that hard attention sampled. Below a caption are
the values that its model has at each word, such as a gate or subgoals, as lines.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor

from showtell.captions import ExplainedCaption, ModelExplanation, WordValues, state_confidence
from showtell.errors import printable, shorten
from showtell.explanations.explanation import Explanation
from showtell.explanations.geometry import attention_map
from showtell.images.boxes import scale_boxes
from showtell.reports.base import SOFTWARE
from showtell.reports.explanation_view import value_range

MIN_COLUMNS, MAX_COLUMNS = 4, 9  # panels in a line; longer captions are wrapped
PANEL = 1.5  # inches that a panel is wide
VALUES, MARGIN = 1.0, 0.55  # inches: height of a plot of values with its words, and its margins
TITLE, HEADING = 0.2, 0.25  # inches above a panel for its word, and above a row for its caption
PIXELS = 320  # of a panel's longer side
DARK = 0.45  # of a photo's brightness is left where the attention is 0
CONTOUR = 0.5  # share of the map's maximum at which a line is drawn
LETTER, TITLE_LETTER = 0.088, 0.068  # inches that a letter is wide: of a heading, of a panel's word
MAX_WORD, MAX_HEADING = 40, 300  # characters; longer texts are shortened
MARK, RED = "#e8710a", "#b3261e"  # of regions, and of hallucinated words


def draw(explanation: Explanation) -> Figure:
    """The figure."""
    photo = explanation.photo.copy()
    photo.thumbnail((PIXELS, PIXELS))
    rows = [(model, caption) for model in explanation.models for caption in model.captions]
    panels = [1 + len(caption.words) for _, caption in rows]
    across = min(MAX_COLUMNS, max(MIN_COLUMNS, *panels))
    tall = PANEL * photo.height / photo.width
    width = across * PANEL
    headings = [_heading(model, caption, width, several=len(rows) > 1) for model, caption in rows]
    lines = sum(math.ceil(count / across) for count in panels)
    plots = sum(len(caption.word_values) for _, caption in rows)
    height = HEADING * sum(map(len, headings)) + (TITLE + tall) * lines + VALUES * plots
    figure = Figure(figsize=(width, height), facecolor="white")

    def axes_at(left: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))

    top = 0.0  # inches from the upper edge
    for (model, caption), heading, count in zip(rows, headings, panels, strict=True):
        middle = 1 - (top + HEADING * len(heading) / 2) / height
        figure.text(0.01, middle, "\n".join(heading), va="center", fontsize=9, weight="bold", parse_math=False)
        top += HEADING * len(heading)
        for index in range(count):
            line, column = divmod(index, across)
            axes = axes_at(column * PANEL + 0.02, top + line * (TITLE + tall) + TITLE, PANEL - 0.04, tall - 0.02)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            if index == 0:
                axes.imshow(np.asarray(photo), aspect="auto")
            else:
                _draw_word(axes, photo, explanation.size, model, caption, index - 1)
        top += math.ceil(count / across) * (TITLE + tall)
        for values in caption.word_values:
            _plot_values(axes_at(MARGIN, top + 0.1, width - 2 * MARGIN, VALUES - 0.5), values, caption)
            top += VALUES
    return figure


def to_png(explanation: Explanation, dots: int = 150) -> bytes:
    """The figure as the content of a PNG file with this number of dots per inch."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a character that the font lacks is drawn as a box
        draw(explanation).savefig(stream, format="png", dpi=dots, metadata={"Software": SOFTWARE})
    return stream.getvalue()


def _heading(model: ModelExplanation, caption: ExplainedCaption, width: float, several: bool) -> list[str]:
    """The lines above a row: model and stage, if there are several rows, and the caption."""
    title = ", ".join(part for part in (model.model, caption.title) if part) if several else caption.title
    doubt = f" ({state_confidence(caption.confidence, caption.doubt)})" if caption.doubt else ""
    text = _shown((f"{title}: {caption.text}" if title else caption.text) + doubt, MAX_HEADING)
    return textwrap.wrap(text, width=round(width / LETTER)) or [""]


def _draw_word(
    axes: Axes,
    photo: Image.Image,
    size: tuple[int, int],
    model: ModelExplanation,
    caption: ExplainedCaption,
    position: int,
) -> None:
    """The panel of one word: where the model looked, under the word and its probability."""
    word = caption.words[position]
    if caption.attention is None or model.boxes is None:
        axes.set_axis_off()
    else:
        boxes = scale_boxes(model.boxes, size, photo.size)
        weights = caption.attention[position]
        _light_photo(axes, photo, weights, boxes, model.grid)
        if model.grid is None:
            _outline(axes, boxes, int(weights.argmax()), model.labels)
        if word.sampled_region is not None:
            left, top, right, bottom = boxes[word.sampled_region].tolist()
            (mark,) = axes.plot((left + right) / 2, (top + bottom) / 2, "+", color=MARK, markersize=10)
            mark.set_path_effects([withStroke(linewidth=3.5, foreground="white")])
    title = f"{_shown(word.word) or '(end)'} {word.probability:.0%}"
    room = axes.bbox.width / axes.figure.dpi / (TITLE_LETTER * len(title))
    colour = "black" if word.hallucinated is None else RED
    axes.set_title(title, fontsize=8 * min(1, max(0.5, room)), pad=2, color=colour, parse_math=False)


def _light_photo(axes: Axes, photo: Image.Image, weights: Tensor, boxes: Tensor, grid: tuple[int, int] | None) -> None:
    """Draw the photo, bright where the weights (R,) of its regions (R, 4) are high."""
    if grid is None:  # the highest weight of the boxes over each pixel
        light = np.zeros(photo.size[::-1])
        for region in weights.argsort().tolist():
            left, top, right, bottom = (round(edge) for edge in boxes[region].tolist())
            light[max(0, top) : max(bottom, top + 1), max(0, left) : max(right, left + 1)] = float(weights[region])
    else:
        light = attention_map(weights, boxes, photo.size, grid=grid, style="smooth")
    light = light / light.max()
    bright = np.asarray(photo, dtype=np.float64) / 255
    axes.imshow(bright * np.minimum(DARK + (1 - DARK) * light, 1)[..., None], aspect="auto")
    if grid is not None and light.min() < CONTOUR:
        line = axes.contour(light, levels=[CONTOUR], colors="white", linewidths=0.9)
        line.set_path_effects([withStroke(linewidth=1.9, foreground="black")])


def _shown(text: str, limit: int = MAX_WORD) -> str:
    return printable(shorten(text, limit))


def _plot_values(axes: Axes, values: WordValues, caption: ExplainedCaption) -> None:
    axes.plot(values.values.numpy(), marker=".", linewidth=1)
    if value_range(values.values) == (0, 1):
        axes.set_ylim(-0.05, 1.05)
    words = [_shown(word.word) or "(end)" for word in caption.words]
    axes.set_xlim(-0.5, len(words) - 0.5)
    slanted: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(words)), words, parse_math=False, **slanted)
    axes.tick_params(labelsize=7)
    axes.set_ylabel(values.title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _outline(axes: Axes, boxes: Tensor, region: int, labels: tuple[str, ...] | None) -> None:
    """Outline the box of a region, with the class that the encoder gives it."""
    left, top, right, bottom = boxes[region].tolist()
    axes.add_patch(Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor=MARK, linewidth=1.2))
    if labels is not None and labels[region]:
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(left, top, labels[region], fontsize=6, color="black", va="top", parse_math=False, bbox=ground)
