"""Numbers over the steps of a run as small SVG charts, for pages that load nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup, escape
from matplotlib.ticker import MaxNLocator

Points = Sequence[tuple[float, float]]  # (step, value), by step

WIDTH, HEIGHT = 340, 170
LEFT, TOP, RIGHT, BOTTOM = 48, 8, 10, 22  # margins
MOST_POINTS = 200  # of a line; more are averaged over equal numbers of neighbours
FEW_POINTS = 30  # of a line, up to which each point has a dot that says its number

# What the charts need of a page's style: colours for the first line and for the second.
STYLE = """
.charts { display: flex; flex-wrap: wrap; gap: 1rem; }
.charts figure { margin: 0; flex: 1 1 18rem; max-width: 26rem; }
.charts svg { width: 100%; height: auto; background: var(--raised, #8882); border-radius: .4rem; }
.charts text { font-size: 11px; fill: currentColor; }
.charts .grid { stroke: currentColor; opacity: .15; }
.charts polyline { fill: none; stroke-width: 2; }
.charts .line-0 { stroke: var(--accent, currentColor); } .charts .dot-0 { fill: var(--accent, currentColor); }
.charts .line-1 { stroke: #d9730d; } .charts .dot-1 { fill: #d9730d; }
.charts figcaption b.name-0 { color: var(--accent, currentColor); } .charts figcaption b.name-1 { color: #d9730d; }
"""


def chart(title: str, lines: Mapping[str, Points]) -> Markup:
    """A chart of one or two lines over the same steps, with its numbers in words for those who do not see it.

    >>> "loss: training 4.3 at step 10, 1.2 at step 90" in chart("loss", {"training": [(10, 4.3), (90, 1.2)]})
    True

    Args:
        title: what is drawn.
        lines: a name for each line, "" for the only one. What is no number in them is left out.
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in lines.items()}
    drawn = {name: _thinned(points) for name, points in finite.items() if points}
    said = f"{title}: " + ("; ".join(_in_words(name, finite[name]) for name in drawn) or "no values yet")
    body = _axes_and_lines(list(drawn.values())) if drawn else Markup()
    names = [
        Markup('<b class="name-{}">{}</b>').format(place, name) for place, name in enumerate(drawn) if len(drawn) > 1
    ]
    caption = Markup(" · ").join([escape(title), *names])
    return Markup(
        '<figure><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg><figcaption>{}</figcaption></figure>'
    ).format(WIDTH, HEIGHT, said, body, caption)


def _in_words(name: str, points: Points) -> str:
    (first, began), (last, ended) = points[0], points[-1]
    return f"{name} {began:.4g} at step {first:g}, {ended:.4g} at step {last:g}".strip()


def _thinned(points: Points) -> Points:
    """At most `MOST_POINTS` of them: the means of neighbours, at their mean step."""
    if len(points) <= MOST_POINTS:
        return points
    return [(float(x), float(y)) for x, y in (part.mean(0) for part in np.array_split(np.array(points), MOST_POINTS))]


def _axes_and_lines(lines: Sequence[Points]) -> Markup:
    values = [y for points in lines for _, y in points]
    ticks = _ticks(min(values), max(values))
    low, high = ticks[0], ticks[-1]
    last = max(x for points in lines for x, _ in points) or 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + x / last * (WIDTH - LEFT - RIGHT)
        return round(across, 1), round(HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = []
    for value in ticks:
        _, y = place(0, value)
        parts.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        parts.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(LEFT - 6, y + 4, f"{value:g}"))
    for step in MaxNLocator(nbins=4, integer=True).tick_values(0, last):
        x, _ = place(float(step), low)
        if step <= last:
            text = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
            parts.append(text.format(x, HEIGHT - 6, f"{step:,.0f}"))
    for number, points in enumerate(lines):
        corners = " ".join(f"{x},{y}" for x, y in (place(*point) for point in points))
        parts.append(Markup('<polyline class="line-{}" points="{}"/>').format(number, corners))
        for point in points if len(points) <= FEW_POINTS else ():
            x, y = place(*point)
            dot = Markup('<circle class="dot-{}" cx="{}" cy="{}" r="3"><title>{}</title></circle>')
            parts.append(dot.format(number, x, y, f"{point[1]:.4g} at step {point[0]:g}"))
    return Markup().join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from below the lowest value to above the highest, two at least."""
    if low == high:
        low, high = low - (abs(low) or 1), high + (abs(high) or 1)
    return [float(tick) for tick in MaxNLocator(nbins=4).tick_values(low, high)]
