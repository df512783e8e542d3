"""Does attention lie on the objects that are named? A table by model for docs/results_attention.md.

    python benchmarks/attention_numbers.py --out runs/old-papers [--split test] [--images 100] [--captions 2]
        [--rows sat_soft,updown] [--docs docs/results_attention.md] [--json]

--out is what `old_papers.py --out` wrote: its pictures and its finished runs, which are only read. Of every row the
seeds are pooled (an image's statistics are averaged over them), so that intervals say what other images would bring.
`grounding/pointing.py` defines the numbers.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from documents import Lines, cell, markers_of, measure_rows, publish, reader, table
from old_papers import ROWS
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.grounding.pointing import measure_attention
from showtell.scores import Interval, ScoreReport, intervals
from showtell.scores.base import corpus_numbers
from study import pool_reports

UNDEFINED = Interval(float("nan"), float("nan"))  # of a number that is not defined
SAYS = {row.name: row.says for row in ROWS}
ASKED = (
    *("sat_soft", "sat_hard", "updown", "stack", "sat_soft_before", "sat_soft_joint", "updown_joint"),
    *("sat_soft_boxes", "updown_boxes", "nic_gru"),
)
# What is measured: along which captions, by which occlusion method.
QUESTIONS = {"mean": ("references", "mean"), "pixels": ("references", "pixels"), "own": ("own", "mean")}
COLUMNS = {
    "pointing": ("mean", "pointing"),
    "chance": ("mean", "chance_pointing"),
    "centre": ("mean", "centre_pointing"),
    "over centre": ("mean", "pointing_over_centre"),
    "vector hidden": ("mean", "occlusion_pointing"),
    "pixels hidden": ("pixels", "occlusion_pointing"),
    "pixels hidden, over attention": ("pixels", "occlusion_over_attention"),
    "mass": ("mean", "mass"),
    "mass, chance": ("mean", "chance_mass"),
    "overlap": ("mean", "overlap"),
    "overlap, chance": ("mean", "chance_overlap"),
}
AGREEMENT = {
    "vector hidden": ("mean", "correlation"),
    "vector hidden, object words": ("mean", "correlation_named"),
    "vector hidden, with signs": ("mean", "correlation_signed"),
    "pixels hidden": ("pixels", "correlation"),
    "pixels hidden, object words": ("pixels", "correlation_named"),
    "own captions: pointing": ("own", "pointing"),
    "own captions: chance": ("own", "chance_pointing"),
    "own captions: vector hidden": ("own", "occlusion_pointing"),
}


def measure_row(name: str, folders: Sequence[Path], records: Sequence[CaptionRecord]) -> dict[str, Any]:
    """The numbers of one row over its seeds, question by question, each with its interval."""
    reports: dict[str, list[ScoreReport]] = {question: [] for question in QUESTIONS}
    for folder in folders:
        captioner = Captioner.from_pretrained(folder / "best", device="cpu")
        for question, (captions, occlusion) in QUESTIONS.items():
            reports[question].append(
                measure_attention(captioner, records, captions=captions, occlusion=occlusion).report
            )
    numbers_of = {}
    for question, of_seeds in reports.items():
        pooled = pool_reports(of_seeds)
        (statistics,) = pooled.statistics.values()
        bounds = intervals(pooled)
        numbers = zip(statistics.score.names, corpus_numbers(statistics.score, statistics.rows).tolist(), strict=True)
        numbers_of[question] = {
            number: {"value": value, **dataclasses.asdict(bounds.get(number, UNDEFINED))} for number, value in numbers
        }
    return {"name": name, "says": SAYS[name], "seeds": [int(folder.name) for folder in folders], **numbers_of}


def tables(lines: Lines) -> str:
    """The tables in Markdown."""
    parts = []
    for columns in (COLUMNS, AGREEMENT):
        rows = [[line["says"], *[cell(line[asked][number]) for asked, number in columns.values()]] for line in lines]
        parts.append(table(["model", *columns], rows))
    return "\n\nRank correlation of attention with occlusion, and the words of own captions:\n\n".join(parts)


def ratios(lines: Lines) -> list[dict[str, Any]]:
    """What `--json` prints: pointing of attention and of occlusion, against chance."""
    return [
        {
            "name": f"{line['name']}_{shown}",
            "value": (value := line[question][number]["value"]),
            "unit": "share of mentions",
            "against": "chance",
            "ratio": value / line[question]["chance_pointing"]["value"],
        }
        for line in lines
        for shown, (question, number) in {
            "pointing": ("mean", "pointing"),
            "pointing_vector_hidden": ("mean", "occlusion_pointing"),
            "pointing_pixels_hidden": ("pixels", "occlusion_pointing"),
        }.items()
        if line[question][number]["value"] == line[question][number]["value"]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the tables where they are wanted."""
    parser = reader(__doc__, images=100, rows=",".join(ASKED))
    parser.add_argument("--split", default="test")
    parser.add_argument("--captions", type=int, default=2, help="references of each image")
    given = parser.parse_args(arguments)
    names = given.rows.split(",")
    if unknown := [name for name in names if name not in SAYS]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(SAYS)}")

    def find() -> Lines:
        records = open_dataset(given.out / "scenes").limited(given.images, given.captions).split(given.split)
        return measure_rows(given.out, names, lambda *row: measure_row(*row, records))

    return publish("attention_numbers", given, markers_of("attention"), find, tables, ratios)


if __name__ == "__main__":
    sys.exit(main())
