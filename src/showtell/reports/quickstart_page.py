"""The page of a quickstart: scores beside baselines, curves, and captions with the truth of each statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from showtell.captions import Caption
from showtell.datasets.records import CaptionRecord
from showtell.files import read_log, write_text
from showtell.reports import curves
from showtell.reports.base import data_url, render_page
from showtell.scenes.truth import CaptionTruth

KINDS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}  # suffix of a picture to its media type

_STYLE = """
table.scores { width: auto; }
table.scores th[scope="row"] { font-weight: 400; }
table.scores tr.model th[scope="row"], tr.model td { font-weight: 600; }
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr));
  gap: 1.2rem; padding: 0; list-style: none; }
.examples > li { display: grid; grid-template-columns: 8rem 1fr; gap: .8rem; border: 1px solid var(--line);
  border-radius: .5rem; padding: .7rem; }
.examples img { width: 8rem; image-rendering: pixelated; border-radius: .3rem; outline: 1px solid var(--line); }
.caption { font-weight: 600; margin: 0 0 .3rem; }
ul.statements { margin: 0; padding: 0; list-style: none; font-size: .85rem; }
.examples details ul { padding-left: 1rem; }
"""


@dataclass(frozen=True)
class Example:
    """A test picture with its caption."""

    record: CaptionRecord
    caption: Caption
    judgement: CaptionTruth

    @property
    def source(self) -> str:
        """The picture as a data URL."""
        kind = KINDS[self.record.path.suffix.lower()]
        return data_url(self.record.path.read_bytes(), kind)


@dataclass(frozen=True)
class Row:
    """A row of the table of scores."""

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
    """Write the page, whole or not at all.

    Args:
        path: of the HTML file.
        rows: the scores of the model and of the baselines, all with the same numbers.
        examples: pictures with captions, in the order of the page.
        signatures: of the scores, by name.
        log: the run's log.jsonl, for the curves.
        facts: about the run, name to text.
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
    page = render_page(
        "quickstart_page.html.j2",
        "showtell quickstart",
        styles=[_STYLE],
        rows=rows,
        examples=examples,
        signatures=signatures,
        charts=charts,
        facts=facts,
        next_steps=next_steps,
    )
    write_text(path, page)
