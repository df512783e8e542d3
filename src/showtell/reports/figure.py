"""An explanation as a matplotlib figure: the photo, and beside it a panel for each word, lit where the model looked.

Each map of a caption, of a captioner or a stage, is a row: attention, as in the figures of Xu et al. 2015 and Gu et al.
2018, and the saliency that was asked for. What has no weight is shaded, or a perceptual colormap lies over the grey
photo; a bar says what its ends mean. Below the name of a word stands its highest weight beside that of even attention,
and a map without a peak is hardly shaded. Detected regions light their boxes, and the heaviest has its outline and its
class. A cross marks the region that hard attention sampled. Below a caption are the values that its model has at each
word, such as a gate or subgoals, as lines.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor

from showtell.captions import (
    ExplainedCaption,
    ExplainedWord,
    Explanation,
    ModelExplanation,
    WordValues,
    state_confidence,
)
from showtell.errors import UsageError, nearest, printable, shorten
from showtell.explanations.geometry import attention_map
from showtell.images.boxes import Floats, scale_boxes
from showtell.reports.base import SOFTWARE
from showtell.reports.explanation_view import MAX_DROP, describe_peak, is_flat, value_range

MIN_COLUMNS, MAX_COLUMNS = 3, 9  # panels in a line; longer captions are wrapped
VALUES, MARGIN = 1.1, 0.6  # inches: height of a plot of values with its words, and its margins
TITLE, HEADING, BAR = 0.36, 0.25, 0.25  # inches for a panel's word, above a row for its caption, for each bar below all
PIXELS = 480  # of a panel's longer side
DARK, FLAT = 0.12, 0.4  # of a photo's brightness is left where there is no weight; at a word without a peak
LETTER, TITLE_LETTER = 0.088, 0.068  # inches that a letter is wide: of a heading, of a panel's word
MAX_WORD, MAX_HEADING = 40, 300  # characters; longer texts are shortened
MARK, RED = "#e8710a", "#b3261e"  # of regions, and of hallucinated words
SHADES = LinearSegmentedColormap.from_list("shades", [str(DARK), "1"])
SIGNED = LinearSegmentedColormap.from_list("signed", ["#3c96ff", "#333333", "#ff8c00"])


@dataclass(frozen=True)
class _Row:
    """A map of a caption: its words, and the weights (T, R) of their regions."""

    model: ModelExplanation
    caption: ExplainedCaption
    words: tuple[ExplainedWord, ...]
    weights: Tensor | None
    is_saliency: bool = False


def draw(
    explanation: Explanation,
    *,
    words: Sequence[str] | None = None,
    scale: Literal["word", "absolute"] = "word",
    size: float = 1.7,
) -> Figure:
    """The figure; see `Explanation.figure`."""
    photo = explanation.photo.copy()
    photo.thumbnail((PIXELS, PIXELS))
    captions = [(model, caption) for model in explanation.models for caption in model.captions]
    rows = [row for model, caption in captions for row in _rows(model, caption, words)]
    if not rows:
        known = {word.word for _, caption in captions for word in caption.words}
        raise UsageError(f"No caption of {explanation.image} has one of the words {words}; {nearest('', known)}.")
    looked = [row.weights for row in rows if row.weights is not None and not row.is_saliency]
    highest = max((float(weights.max()) for weights in looked), default=0.0) if scale == "absolute" else None
    panels = [1 + len(row.words) for row in rows]
    across = min(MAX_COLUMNS, max(MIN_COLUMNS, *panels))
    tall = size * photo.height / photo.width
    width = across * size
    headings = [_heading(row, width, several=len(rows) > 1) for row in rows]
    lines = sum(math.ceil(count / across) for count in panels)
    plots = sum(len(row.caption.word_values) for row in rows if not row.is_saliency)
    bars: list[tuple[Colormap, str, str, str]] = []
    if looked:
        end = "the word's highest weight" if highest is None else f"{highest:.0%}"
        bars.append((SHADES, "attention 0", end, "attention"))
    if any(row.is_saliency for row in rows):
        bars.append((SIGNED, f"-{MAX_DROP:.2g}", f"+{MAX_DROP:.2g} of the log-probability", "saliency"))
    height = HEADING * sum(map(len, headings)) + (TITLE + tall) * lines + VALUES * plots + BAR * (1 + len(bars))
    figure = Figure(figsize=(width, height), facecolor="white")

    def axes_at(left: float, top: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, 1 - (top + high) / height, wide / width, high / height))

    top = 0.0  # inches from the upper edge
    for row, heading, count in zip(rows, headings, panels, strict=True):
        middle = 1 - (top + HEADING * len(heading) / 2) / height
        figure.text(0.01, middle, "\n".join(heading), va="center", fontsize=9, weight="bold", parse_math=False)
        top += HEADING * len(heading)
        for index in range(count):
            line, column = divmod(index, across)
            axes = axes_at(column * size + 0.02, top + line * (TITLE + tall) + TITLE, size - 0.04, tall - 0.02)
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color("0.8")
            if index == 0:
                axes.imshow(np.asarray(photo), aspect="auto")
            else:
                _draw_word(axes, photo, explanation.size, row, index - 1, highest)
        top += math.ceil(count / across) * (TITLE + tall)
        for values in () if row.is_saliency else row.caption.word_values:
            _plot_values(axes_at(MARGIN, top + 0.12, width - 2 * MARGIN, VALUES - 0.6), values, row.caption)
            top += VALUES
    for number, (colours, low, high, label) in enumerate(bars):
        at = axes_at(1.1, top + BAR * (number + 0.75), 1.1, 0.12)
        bar = figure.colorbar(ScalarMappable(cmap=colours), cax=at, ticks=[], orientation="horizontal")
        bar.ax.set_label(label)
        bar.ax.text(-0.04, 0.5, low, ha="right", va="center", fontsize=7, transform=bar.ax.transAxes)
        bar.ax.text(1.04, 0.5, high, ha="left", va="center", fontsize=7, transform=bar.ax.transAxes)
    return figure


def to_png(explanation: Explanation, dots: int = 150) -> bytes:
    """The figure as the content of a PNG file with this number of dots per inch."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a character that the font lacks is drawn as a box
        draw(explanation).savefig(stream, format="png", dpi=dots, metadata={"Software": SOFTWARE})
    return stream.getvalue()


def _rows(model: ModelExplanation, caption: ExplainedCaption, words: Sequence[str] | None) -> list[_Row]:
    """The maps of a caption at the words that are asked for."""
    kept = [index for index, word in enumerate(caption.words) if words is None or word.word in words]
    if not kept and words is not None:
        return []
    shown = tuple(caption.words[index] for index in kept)
    values = tuple(replace(one, values=one.values[kept]) for one in caption.word_values)
    caption = replace(caption, words=shown, word_values=values)
    saliency = [word.saliency for word in shown if word.saliency is not None]
    looked = None if caption.attention is None or model.boxes is None else caption.attention[kept]
    rows = [_Row(model, caption, shown, looked)] if looked is not None or not saliency else []
    if saliency and model.boxes is not None:
        rows.append(_Row(model, caption, shown, torch.stack(saliency), is_saliency=True))
    return rows


def _heading(row: _Row, width: float, several: bool) -> list[str]:
    """The lines above a row: model, stage and method, if there are several rows, and the caption."""
    model, caption, method = row.model, row.caption, row.model.saliency if row.is_saliency else ""
    parts = (model.model, caption.title, method or "")
    title = ", ".join(part for part in parts if part) if several else caption.title
    doubt = f" ({state_confidence(caption.confidence, caption.doubt)})" if caption.doubt else ""
    text = _shown((f"{title}: {caption.text}" if title else caption.text) + doubt, MAX_HEADING)
    return textwrap.wrap(text, width=round(width / LETTER)) or [""]


def _draw_word(
    axes: Axes, photo: Image.Image, size: tuple[int, int], row: _Row, position: int, highest: float | None
) -> None:
    """The panel of one word: where the model looked, under the word, its probability and the weight of the peak."""
    word, note = row.words[position], ""
    if row.weights is None or row.model.boxes is None:
        axes.set_axis_off()
    else:
        boxes = scale_boxes(row.model.boxes, size, photo.size)
        weights = row.weights[position]
        peak = int(weights.argmax())
        if row.is_saliency:
            note = f"up to {weights[peak]:+.2f}"
            _colour_photo(axes, photo, _light(weights / MAX_DROP, boxes, photo, row.model.grid), SIGNED)
        else:
            note = describe_peak(weights)
            end = max(float(weights.max()) if highest is None else highest, 1e-12)
            _light_photo(axes, photo, _light(weights / end, boxes, photo, row.model.grid), is_flat(weights))
        if row.model.grid is None:
            _outline(axes, boxes, peak, row.model.labels)
        if word.sampled_region is not None and not row.is_saliency:
            left, top, right, bottom = boxes[word.sampled_region].tolist()
            (mark,) = axes.plot((left + right) / 2, (top + bottom) / 2, "+", color=MARK, markersize=10)
            mark.set_path_effects([withStroke(linewidth=3.5, foreground="white")])
    title = f"{_shown(word.word) or '(end)'} {word.probability:.0%}"
    room = axes.bbox.width / axes.figure.dpi / (TITLE_LETTER * len(title))
    colour = "black" if word.hallucinated is None else RED
    axes.set_title(title, fontsize=8 * min(1, max(0.5, room)), pad=12 if note else 2, color=colour, parse_math=False)
    if note:
        axes.text(0.5, 1.02, note, ha="center", va="bottom", fontsize=6.5, color="0.35", transform=axes.transAxes)


def _light(weights: Tensor, boxes: Tensor, photo: Image.Image, grid: tuple[int, int] | None) -> Floats:
    """The map of weights (R,) of regions (R, 4) over the pixels of a photo, its peak as high as that of the weights."""
    if grid is not None:
        light = attention_map(weights, boxes, photo.size, grid=grid, style="smooth")
        scaled: Floats = light * (float(weights.abs().max()) / max(np.abs(light).max(), 1e-12))
        return scaled
    light = np.zeros(photo.size[::-1])
    for region in weights.abs().argsort().tolist():  # the highest weight over each pixel
        left, top, right, bottom = (round(edge) for edge in boxes[region].tolist())
        light[max(0, top) : max(bottom, top + 1), max(0, left) : max(right, left + 1)] = float(weights[region])
    return light


def _light_photo(axes: Axes, photo: Image.Image, light: Floats, flat: bool) -> None:
    """Draw the photo shaded by a map from 0 to 1."""
    dark = FLAT if flat else DARK
    picture = np.asarray(photo, dtype=np.float64) / 255 * (dark + (1 - dark) * light.clip(0, 1)[..., None])
    axes.imshow(picture.clip(0, 1), aspect="auto")


def _colour_photo(axes: Axes, photo: Image.Image, values: Floats, colours: Colormap) -> None:
    """Draw a dark grey photo with colours over it where values from -1 to 1 are far from 0."""
    grey = np.asarray(photo.convert("L"), dtype=np.float64)[..., None] / 255 * 0.5
    share = np.abs(values).clip(0, 1)[..., None] ** 0.5 * 0.85
    axes.imshow((1 - share) * grey + share * colours(np.where(values < 0, 0.0, 1.0))[..., :3], aspect="auto")


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
