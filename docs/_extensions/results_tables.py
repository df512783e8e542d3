"""The tables of the pages of results, made from what `benchmarks/study.py` wrote."""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from pathlib import Path

from settings_tables import row, table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
NUMBERS = ("difference", "low", "high")  # other images
SEEDS_TOO = ("difference", "low, seeds too", "high, seeds too")
STUDIES = ("models", "three-seeds", "ablations", "classic", "rewards", "hacap")


@cache
def rows(name: str) -> list[dict[str, str]]:
    """The lines of a file."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def photos_table() -> str:
    """A row for each row of the study on photos, its difference of CIDEr-D to the first that it is held against."""
    scores = {"BLEU-4, no brevity penalty": "BLEU-4", "METEOR": "METEOR", "CIDEr-D": "CIDEr-D"}
    shares = {"said of another photo too": "shared", "told from a person's": "told"}
    first: dict[str, dict[str, str]] = {}
    for one in rows("photos-differences"):
        if one["score"] == "CIDEr-D":
            first.setdefault(one["row"], one)
    lines = []
    for one in rows("photos-scores"):
        if one["seeds"]:
            cells = [" ± ".join(f"{100 * float(part):.1f}" for part in one[name].split(" ± ")) for name in scores]
            held = first.get(one["row"])
            difference = interval([f"{100 * float(held[name]):+.1f}" for name in SEEDS_TOO]) if held else ""
            if held and held["minus"].endswith("trained again"):
                difference += " *"
            reads = [f"{100 * float(one[share].partition(' ')[0]):.0f}\u00a0%" for share in shares]
            words = f"{float(one['different words'].partition(' ')[0]):.0f}"
            run = (_rate(one), one["seeds"], one["device"].replace("NVIDIA ", ""))
            lines.append(row(one["row"], *run, *cells, difference, words, *reads))
    return table(["row", "rate", "seeds", "device", *scores.values(), "difference", "words", *shares.values()], lines)


def _rate(one: dict[str, str]) -> str:
    """A row's rate, and how it was chosen: on validation among those tried, written as "0.001: 0.3604, ..."."""
    rate, whose = one["learning rate"], f'that of "{one["tried by"]}", ' if one["tried by"] else ""
    scores = dict(part.split(": ") for part in one["rates tried"].split(", ") if part)
    best = max(scores, key=lambda tried: (float(scores[tried]), -float(tried)), default=rate)
    if best != rate:
        return f"{rate}, {whose}of {len(scores)} {best} is the best"
    return f"{rate}, {whose}" + (f"best of {len(scores)}" if len(scores) > 1 else "not tuned")


def scenes_table() -> str:
    """The differences of each study."""
    columns = [(score, split) for split in ("test", "test_compositional") for score in ("CIDEr-D", "truth")]
    parts = []
    for study in STUDIES:
        pairs: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
        for one in rows(f"{study}-differences"):
            text = interval([one[name] for name in NUMBERS])
            pairs.setdefault((one["row"], one["minus"]), {})[one["score"], one["split"]] = text
        usual = Counter(minus for _, minus in pairs).most_common(1)[0][0]
        lines = [
            row(name if minus == usual else f"{name}, minus {minus}", *(cells[column] for column in columns))
            for (name, minus), cells in pairs.items()
        ]
        heads = [f"{score}, `{split}`" for score, split in columns]
        parts.append(table([f"`{study}`: minus {usual}, unless another is named", *heads], lines))
    return "\n\n".join(parts)


def interval(numbers: list[str]) -> str:
    """A difference and its interval."""
    return "{} [{}, {}]".format(*numbers)
