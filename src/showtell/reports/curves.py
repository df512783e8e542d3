"""Curves over the steps of a run as small SVG charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

Points = Sequence[tuple[float, float]]  # (step, value), by step

WIDTH, HEIGHT = 340, 170
LEFT, TOP, RIGHT, BOTTOM = 48, 8, 10, 22  # margins
MAX_POINTS = 200  # of a line; more are averaged over equal numbers of neighbours
TINY = 1e-9  # largest value that is drawn as 0


def chart(title: str, lines: Mapping[str, Points]) -> Markup:
    """A chart of one line (named "") or two, non-finite values left out; only its text if no line has two points."""
    # the tail of smoothed scores is 0: BLEU-4 of captions without a common 4-gram is 1.6e-14
    finite = {
        name: [(x, y if abs(y) > TINY else 0.0) for x, y in points if math.isfinite(y)]
        for name, points in lines.items()
    }
    drawn = {name: points for name, points in finite.items() if points}
    label = f"{title}: " + ("; ".join(_describe(name, points) for name, points in drawn.items()) or "no values yet")
    if max(map(len, drawn.values()), default=0) < 2:
        return Markup('<p class="small">{}</p>').format(label)
    body = _axes_and_lines([_thinned(points) for points in drawn.values()])
    names = [Markup('<b class="name-{}">{}</b>').format(index, name) for index, name in enumerate(drawn) if name]
    caption = Markup(" · ").join([escape(title), *names])
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg><figcaption>{}</figcaption></figure>'
    ).format(WIDTH, HEIGHT, label, body, caption)


def _describe(name: str, points: Points) -> str:
    texts = [f"{value:.4g} at step {step:g}" for step, value in dict.fromkeys((points[0], points[-1]))]
    return f"{name} {', '.join(texts)}".strip()


def _thinned(points: Points) -> Points:
    """At most `MAX_POINTS` of them: the means of neighbours, at their mean step."""
    if len(points) <= MAX_POINTS:
        return points
    return [(float(x), float(y)) for x, y in (part.mean(0) for part in np.array_split(np.array(points), MAX_POINTS))]


def _axes_and_lines(lines: Sequence[Points]) -> Markup:
    values = [y for points in lines for _, y in points]
    ticks = _ticks(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    last = max(x for points in lines for x, _ in points) or 1

    def position(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / last * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = []
    for value in ticks:
        _, y = position(0, value)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(LEFT - 6, y + 4, f"{value:g}"))
    for step in MaxNLocator(nbins=4, integer=True).tick_values(0, last):
        x, _ = position(float(step), low)
        if step <= last:
            text = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
            parts.append(text.format(x, HEIGHT - 6, f"{step:,.0f}"))
    for number, points in enumerate(lines):
        corners = " ".join(f"{x},{y}" for x, y in (position(*point) for point in points))
        parts.append(Markup('<polyline class="line-{}" points="{}"/>').format(number, corners))
    return Markup().join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest value to above the highest, two at least."""
    if low == high:
        low, high = low - abs(low), high + (abs(high) or 1)
    return [float(tick) for tick in MaxNLocator(nbins=4).tick_values(low, high)]
