"""The page of a quickstart: scores beside baselines, curves, and captions with the truth of each statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from showtell.captions import Caption
from showtell.datasets.records import CaptionRecord
from showtell.files import read_log, write_text
from showtell.reports.base import data_url, render_page, resource
from showtell.reports.curves import chart
from showtell.scenes.truth import CaptionTruth


@dataclass(frozen=True)
class Example:
    """A test picture with its caption."""

    record: CaptionRecord
    caption: Caption
    judgement: CaptionTruth

    @property
    def source(self) -> str:
        """The picture as a data URL."""
        return data_url(self.record.path.read_bytes(), "png")


def write_report(
    path: Path,
    *,
    rows: Mapping[str, Mapping[str, float | None]],
    examples: Sequence[Example],
    signatures: Mapping[str, str],
    log: Path,
    facts: Mapping[str, str],
    next_steps: str,
) -> None:
    """Write the page, whole or not at all; `rows` are scores of the model, then of the baselines, the same numbers."""
    lines = read_log(log)
    losses = [(line["step"], line["words"]) for line in lines if "words" in line]
    scores = [(line["step"], line["validation"]["cider"]) for line in lines if "validation" in line]
    page = render_page(
        "quickstart_page.html.j2",
        "showtell quickstart",
        styles=[resource("quickstart_page.css")],
        rows=rows,
        examples=examples,
        signatures=signatures,
        charts=[chart("training loss", {"": losses}), chart("validation CIDEr-D", {"": scores})],
        facts=facts,
        next_steps=next_steps,
    )
    write_text(path, page)
