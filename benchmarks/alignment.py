"""Do attention and subgoals change together, and with phrases? A table by model for docs/results_alignment.md.

    python benchmarks/alignment.py --out runs/old-papers [--splits test,test_compositional] [--images 300]
        [--rows hacap,sat_soft] [--permutations 2000] [--docs docs/results_alignment.md] [--figures FOLDER] [--json]

--out is what `old_papers.py --out` wrote: its pictures, and its finished runs, which are only read. Of every row all
seeds are measured, along references and along own captions. Correlations and means are of all seeds together, with
intervals over images; p is the greatest of the seeds', and what becomes of goals is the mean over them.
`goal_alignment.py` defines the numbers. --figures draws the first images as Figure 3 of papers/000 has it.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from documents import Lines, cell, markers_of, measure_rows, publish, reader, table
from goal_alignment import (
    PAIRS,
    PERMUTATIONS,
    AlignmentReport,
    CaptionSeries,
    measure_alignment,
    phrase_begins,
)
from segments_figure import draw_segments
from showtell.captioners import Captioner
from showtell.captioners.explaining import grid_of
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.images.photo import to_photo
from showtell.scores import Interval, intervals
from showtell.scores.base import corpus_numbers
from study import pool_reports

import torch

UNDEFINED = Interval(float("nan"), float("nan"))  # of a number that is not defined
OF = ("references", "own")
FIGURES = 6
CORRELATIONS = {
    "goals, attention": "goals_attention",
    "next": "goals_attention_next",
    "same phrases": "goals_attention_same_phrases",
    "same phrases, next": "goals_attention_same_phrases_next",
    "goals, phrases": "goals_phrases",
    "attention, phrases": "attention_phrases",
    "attention, phrases, next": "attention_phrases_next",
}
MEANS = {
    "moved": "moved",
    "where a phrase begins": "moved_begins",
    "within": "moved_within",
    "difference": "moved_begins_over_within",
    "a word later": "moved_begins_next",
    "elsewhere": "moved_within_next",
    "difference, a word later": "moved_begins_over_within_next",
    "unevenness": "unevenness",
    "turned": "turned",
    "turned more where a phrase begins": "turned_begins_over_within",
}
GOALS = {
    "spread": "spread",
    "over time": "spread_over_time",
    "over captions": "spread_over_captions",
    "dimensions": "dimensions",
    "length": "norm",
}


def measure_row(
    name: str, folders: Sequence[Path], records: Sequence[CaptionRecord], permutations: int, figures: Path | None
) -> dict[str, Any]:
    """The numbers of one row over its seeds, along references and along own captions; of its first seed the figures."""
    row: dict[str, Any] = {"name": name, "seeds": len(folders)}
    captioners = [Captioner.from_pretrained(folder / "best", device="cpu") for folder in folders]
    for of in OF:
        reports = [
            measure_alignment(one, records, source=of, begins=phrase_begins, permutations=permutations)
            for one in captioners
        ]
        row[of] = pooled(reports)
        if figures is not None:
            write_figures(figures, f"{name}-{of}", captioners[0], records, reports[0].captions)
    return row


def write_figures(
    folder: Path, name: str, captioner: Captioner, records: Sequence[CaptionRecord], captions: Sequence[CaptionSeries]
) -> None:
    """Figure 3 of papers/000 for the first images, where there are subgoals."""
    folder.mkdir(parents=True, exist_ok=True)
    for record, caption in list(zip(records, captions, strict=True))[:FIGURES]:
        if caption.goals is None or not caption.words:
            continue
        assert caption.attention is not None
        assert caption.boxes is not None
        figure = draw_segments(
            to_photo(record.path).image,
            caption.boxes,
            grid_of(captioner.encoder, len(caption.boxes)),
            caption.words,
            torch.from_numpy(caption.attention),
            torch.from_numpy(caption.goals),
        )
        figure.savefig(folder / f"{name}-{record.image_id}.png", dpi=110)


def pooled(reports: Sequence[AlignmentReport]) -> dict[str, Any]:
    """Several seeds as one: each number with its interval, and the greatest p."""
    pooled_report = pool_reports([one.report for one in reports])
    (own,) = pooled_report.statistics.values()
    bounds = intervals(pooled_report)
    values = corpus_numbers(own.score, own.rows).tolist()
    return {
        "numbers": {
            name: {
                "value": value,
                **dataclasses.asdict(bounds.get(name, UNDEFINED)),
                **({"p": max(one.p[name] for one in reports)} if all(name in one.p for one in reports) else {}),
            }
            for name, value in zip(own.score.names, values, strict=True)
        },
        "goals": {name: statistics.mean(one.goals[name] for one in reports) for name in reports[0].goals},
    }


def tables(lines: Lines) -> str:
    """The tables in Markdown."""
    parts = []
    for title, columns in (("Correlations", CORRELATIONS), ("Means", MEANS)):
        rows = [
            [line["name"], of, *[_with_p(line[of]["numbers"][number]) for number in columns.values()]]
            for line in lines
            for of in OF
        ]
        parts.append(f"{title}:\n\n" + table(["model", "captions", *columns], rows))
    rows = [
        [line["name"], of, *[f"{line[of]['goals'][name]:.3f}" for name in GOALS.values()]]
        for line in lines
        for of in OF
        if line[of]["goals"]
    ]
    if rows:
        parts.append("Goals:\n\n" + table(["model", "captions", *GOALS], rows))
    return "\n\n".join(parts)


def _with_p(number: dict[str, float]) -> str:
    is_tested = "p" in number and number["value"] == number["value"]
    return f"{cell(number)}, p {number['p']:.4f}" if is_tested else cell(number)


def ratios(lines: Lines) -> list[dict[str, Any]]:
    """What `--json` prints: how much more attention moves where a phrase begins than within phrases; p of the pairs."""
    return [
        {
            "name": f"{line['name']}_{of}_moved",
            "value": numbers["moved_begins"]["value"],
            "unit": "share of attention",
            "against": "within phrases",
            "ratio": numbers["moved_begins"]["value"] / numbers["moved_within"]["value"],
            "p": {name: numbers[name]["p"] for name in PAIRS if "p" in numbers[name]},
        }
        for line in lines
        for of in OF
        for numbers in [line[of]["numbers"]]
        if numbers["moved_within"]["value"] > 0
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the tables where they are wanted."""
    parser = reader(__doc__, images=300)
    parser.add_argument("--splits", default="test,test_compositional", help="parted by commas")
    parser.add_argument("--permutations", type=int, default=PERMUTATIONS)
    parser.add_argument("--figures", type=Path, help=f"a folder for pictures of the first {FIGURES} images")
    given = parser.parse_args(arguments)
    if given.rows:
        names = given.rows.split(",")
    else:
        names = [*sorted(path.name for path in (given.out / "runs").glob("hacap*")), "sat_soft"]

    def find() -> Lines:
        dataset = open_dataset(given.out / "scenes").limited(given.images)
        records = [record for split in given.splits.split(",") for record in dataset.split(split)]
        return measure_rows(
            given.out, names, lambda *row: measure_row(*row, records, given.permutations, given.figures)
        )

    return publish("alignment", given, markers_of("alignment"), find, tables, ratios)


if __name__ == "__main__":
    sys.exit(main())
