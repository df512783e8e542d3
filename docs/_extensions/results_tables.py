"""The tables of the pages of results, made from what `benchmarks/study.py` wrote."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from settings_tables import row, table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
STUDIES = ("models", "three-seeds", "ablations", "classic", "rewards", "hacap")


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The lines of a file."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def photos_table() -> str:
    """A row for each row of the study on photos, its difference of CIDEr-D to the first that it is held against."""
    columns = ("BLEU-4, no brevity penalty", "METEOR", "CIDEr-D")
    shares = {"said of another photo too": "said twice", "told from a person's": "told"}
    first: dict[str, dict[str, str]] = {}
    for one in rows("photos-differences"):
        first.setdefault(one["row"], one)
    lines = []
    for one in rows("photos-scores"):
        if one["seeds"]:
            held = first.get(one["row"])
            against = "" if not held else f"{_hundred(held)} to {held['minus']}"
            reads = [
                one["different words"].partition(".")[0],
                *(f"{100 * _mean(one[share]):.0f} %" for share in shares),
            ]
            scores = [" ± ".join(f"{100 * float(part):.1f}" for part in one[name].split(" ± ")) for name in columns]
            lines.append(row(one["row"], one["seeds"], *scores, *reads, against))
    return table(["row", "seeds", *columns, "different words", *shares.values(), "difference"], lines)


def scenes_table() -> str:
    """The differences of each study."""
    columns = [(split, score) for split in ("test", "test_compositional") for score in ("CIDEr-D", "truth")]
    lines = []
    for study in STUDIES:
        pairs: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
        for one in rows(f"{study}-differences"):
            text = f"{one['difference']} [{one['low']}, {one['high']}]"
            pairs.setdefault((one["row"], one["minus"]), {})[one["split"], one["score"]] = text
        lines += [row(study, *pair, *(cells[column] for column in columns)) for pair, cells in pairs.items()]
    return table(["study", "row", "minus", *(f"{score}, `{split}`" for split, score in columns)], lines)


def _mean(cell: str) -> float:
    return float(cell.partition(" ")[0])


def _hundred(one: dict[str, str]) -> str:
    value, low, high = (f"{100 * float(one[name]):+.1f}" for name in ("difference", "low", "high"))
    return f"{value} [{low}, {high}]"
