"""The page that a quickstart ends with: one file, no network, readable in dark and light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from showtell.captions import Caption
from showtell.datasets.records import CaptionRecord
from showtell.files import read_log, write_text
from showtell.reports import curves
from showtell.reports.base import data_url, templates
from showtell.scenes.truth import CaptionTruth

KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}  # of pictures, by how their files end


@dataclass(frozen=True)
class Example:
    """One picture of the page."""

    record: CaptionRecord
    caption: Caption
    judgement: CaptionTruth

    @property
    def source(self) -> str:
        """The picture itself, as a data URL."""
        kind = KINDS[self.record.path.suffix.lower()]
        return data_url(self.record.path.read_bytes(), kind)


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
    lines = read_log(log)
    charts = [
        curves.chart("training loss", {"": [(line["step"], line["words"]) for line in lines if "words" in line]}),
        curves.chart(
            "validation CIDEr-D",
            {"": [(line["step"], line["validation"]["cider"]) for line in lines if "validation" in line]},
        ),
    ]
    template = templates().get_template("quickstart_page.html.j2")
    page = template.render(
        rows=rows,
        examples=examples,
        signatures=signatures,
        charts=charts,
        chart_style=curves.STYLE,
        facts=facts,
        next_steps=next_steps,
    )
    write_text(path, page)
