"""The page that a quickstart ends with: one file, no network, readable in dark and light."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import jinja2

from showtell.captioner import Caption
from showtell.datasets.records import Record
from showtell.explanations import curves
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
    charts = [
        curves.chart("training loss", {"": [(line["step"], line["words"]) for line in lines if "words" in line]}),
        curves.chart(
            "validation CIDEr-D",
            {"": [(line["step"], line["validation"]["cider"]) for line in lines if "validation" in line]},
        ),
    ]
    page = environment.from_string(template).render(
        rows=rows,
        examples=examples,
        signatures=signatures,
        charts=charts,
        chart_style=curves.STYLE,
        facts=facts,
        next_steps=next_steps,
    )
    write_text(path, page)
