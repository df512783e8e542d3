"""Does attention lie on the objects that are named? A table by model for docs/results.md, from runs of old_papers.py.

    python benchmarks/attention_numbers.py --out runs/old-papers [--split test] [--images 100] [--captions 2]
        [--rows sat_soft,updown] [--docs docs/results.md] [--json]

--out is what `old_papers.py --out` wrote: its pictures and its finished runs, which are only read. Of every row the
seeds are pooled (an image's statistics are averaged over them), so that intervals say what other images would bring.
`explanations/pointing.py` defines the numbers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from old_papers import ROWS, pool_reports, write_between
from showtell.captioner import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import Record
from showtell.errors import DataError, ShowtellError
from showtell.explanations.pointing import measure_attention
from showtell.scores import ScoreReport, intervals
from showtell.scores.base import corpus_numbers

SAYS = {row.name: row.says for row in ROWS}
ASKED = (
    *("sat_soft", "sat_hard", "updown", "stack", "sat_soft_before", "sat_soft_joint", "updown_joint"),
    *("sat_soft_boxes", "updown_boxes", "nic_gru"),
)
MARKERS = ("<!-- attention: begin -->", "<!-- attention: end -->")
# What is asked of a model: whose captions, and how places are hidden.
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


def measure_row(name: str, folders: Sequence[Path], records: Sequence[Record]) -> dict[str, Any]:
    """The numbers of one row over its seeds, question by question, each with its interval."""
    reports: dict[str, list[ScoreReport]] = {question: [] for question in QUESTIONS}
    for folder in folders:
        captioner = Captioner.from_pretrained(folder / "best", device="cpu")
        for question, (of, occlusion) in QUESTIONS.items():
            reports[question].append(measure_attention(captioner, records, of=of, occlusion=occlusion).report)
    found = {}
    for question, of_seeds in reports.items():
        pooled = pool_reports(of_seeds)
        (measured,) = pooled.measured.values()
        bounds = intervals(pooled)
        numbers = zip(measured.score.names, corpus_numbers(measured.score, measured.statistics).tolist(), strict=True)
        found[question] = {number: {"value": value, **dataclasses.asdict(bounds[number])} for number, value in numbers}
    return {"name": name, "says": SAYS[name], "seeds": [int(folder.name) for folder in folders], **found}


def measure_rows(out: Path, names: Sequence[str], records: Sequence[Record]) -> list[dict[str, Any]]:
    """Every row that has a finished run.

    Raises:
        DataError: none has.
    """
    lines = []
    for name in names:
        folders = sorted(path.parent for path in (out / "runs" / name).glob("*/result.json"))
        if folders:
            began = time.perf_counter()
            lines.append(measure_row(name, folders, records))
            print(f"{name}: {len(folders)} runs, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    if not lines:
        raise DataError(f"{out} has no finished run of {', '.join(names)}; run benchmarks/old_papers.py first.")
    return lines


def _cell(line: dict[str, Any], question: str, number: str) -> str:
    found = line[question][number]
    if found["value"] != found["value"]:
        return "–"
    return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """The tables in Markdown."""
    parts = []
    for columns in (COLUMNS, AGREEMENT):
        rows = [["model", *columns], ["---"] * (1 + len(columns))]
        rows += [[line["says"], *[_cell(line, *column) for column in columns.values()]] for line in lines]
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in rows))
    return "\n\nRank correlation of attention with occlusion, and the words of own captions:\n\n".join(parts)


def ratios(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="what old_papers.py --out wrote")
    parser.add_argument("--split", default="test")
    parser.add_argument("--images", type=int, default=100, help="at most so many of the split")
    parser.add_argument("--captions", type=int, default=2, help="references of each image")
    parser.add_argument("--rows", default=",".join(ASKED), help="names of rows, parted by commas")
    parser.add_argument("--docs", type=Path, help="the document to write the tables into, between its markers")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        unknown = [name for name in given.rows.split(",") if name not in SAYS]
        if unknown:
            parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(SAYS)}")
        records = open_dataset(given.out / "scenes").limited(given.images, given.captions).split(given.split)
        lines = measure_rows(given.out, given.rows.split(","), records)
        if given.docs is not None:
            write_between(given.docs, tables(lines), MARKERS)
    except ShowtellError as error:
        print(f"attention_numbers: {error}", file=sys.stderr)
        return 2
    print(json.dumps(ratios(lines)) if given.json else tables(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
