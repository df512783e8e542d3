"""The page that a quickstart ends with: one file, no network, readable in dark and light."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

from showtell.captioner import Caption
from showtell.datasets.records import Record
from showtell.files import write_text
from showtell.scenes.truth import Judgement

MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}


@dataclass(frozen=True)
class Example:
    """One picture of the page."""

    record: Record
    caption: Caption
    judgement: Judgement

    @property
    def source(self) -> str:
        """The picture itself, as a data URL."""
        kind = MEDIA_TYPES[self.record.path.suffix.lower()]
        return f"data:{kind};base64,{base64.b64encode(self.record.path.read_bytes()).decode('ascii')}"


@dataclass(frozen=True)
class Row:
    """One line of the table of scores."""

    name: str
    numbers: dict[str, float | None]


def write_report(
    path: Path,
    *,
    rows: Sequence[Row],
    examples: Sequence[Example],
    signatures: dict[str, str],
    log: Path,
    facts: dict[str, str],
    next_steps: str,
) -> None:
    """Write the page.

    Args:
        path: of the HTML file.
        rows: the scores of the model and of the baselines, all with the same numbers.
        examples: pictures with captions, in the order of the page.
        signatures: how each score was made.
        log: the run's log.jsonl, for the curves.
        facts: name to text, what the run was.
        next_steps: commands.
    """
    template = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    curves = [
        curve("training loss", [(line["step"], line["words"]) for line in lines if "words" in line]),
        curve(
            "validation CIDEr-D",
            [(line["step"], line["validation"]["cider"]) for line in lines if "validation" in line],
        ),
    ]
    page = environment.from_string(template).render(
        rows=rows, examples=examples, signatures=signatures, curves=curves, facts=facts, next_steps=next_steps
    )
    write_text(path, page)


def curve(title: str, points: Sequence[tuple[float, float]], width: int = 320, height: int = 120) -> Markup:
    """A line over the steps as SVG, with its first and last value in words."""
    margin = 8
    top = max((value for _, value in points), default=1.0) or 1.0
    last = max((step for step, _ in points), default=1.0) or 1.0
    path = " ".join(
        f"{margin + step / last * (width - 2 * margin):.1f},{height - margin - value / top * (height - 2 * margin):.1f}"
        for step, value in points
    )
    said = (
        f"{title}: {points[0][1]:.2f} at step {points[0][0]:.0f}, {points[-1][1]:.2f} at step {points[-1][0]:.0f}"
        if points
        else f"{title}: no values"
    )
    return Markup(
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(said)}">'
        f'<polyline points="{path}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
        f"<figcaption>{html.escape(said)}</figcaption></figure>"
    )
