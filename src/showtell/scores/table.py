"""Systems on the same images as one table for people, with who is better at what; or as JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from showtell.scores import ScoreNumber, numbers
from showtell.scores.bootstrap import SAMPLES, Comparison, compare_all, intervals
from showtell.scores.diagnostics import rate_warnings
from showtell.scores.report import ScoreReport

Reports = Mapping[str, ScoreReport]  # by the systems' names
Rates = Mapping[str, Mapping[str, float]]  # of the captions of each system, from `diagnose`
_WIDTH, _FIRST_COLUMN = 100, 18  # characters
_RATES = {  # that tell what is wrong, below the scores, with their digits
    "bad_endings": ("bad endings", 4), "identical": ("identical", 4), "mean_length": ("words per caption", 1),
    "vocabulary": ("different words", 0),
}  # fmt: skip
SIGNIFICANT = 0.05


def as_json(
    reports: Reports, rates: Rates, samples: int = SAMPLES, about: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Of one system its scores, of several {"systems": [...], "comparisons": [...]}; raises as `as_text`."""
    systems = [
        {
            "system": name,
            **(about or {}).get(name, {}),
            **report.to_json(),
            "intervals": {number: asdict(own) for number, own in intervals(report, samples).items()} if samples else {},
            "rates": dict(rates[name]),
        }
        for name, report in reports.items()
    ]
    if len(systems) == 1:
        return systems[0]
    comparisons = compare_all(reports, samples) if samples else []
    return {"systems": systems, "comparisons": list(map(asdict, comparisons))}


def as_text(
    reports: Reports, rates: Rates, samples: int = SAMPLES, *, every_number: bool = False, pairs: bool = False
) -> str:
    """The table, who is best at what, rates that are high, what was skipped and why, how each number was made.

    `every_number` shows also those that papers rarely print, such as BLEU-1; `pairs` the differences of each pair.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
    first = next(iter(reports.values()))
    shown = [name for name in first.scores if name not in first.skipped and (every_number or _known(name).in_table)]
    comparisons = compare_all(reports, samples) if len(reports) > 1 and samples else []
    sentences = _best(reports, shown, comparisons)
    for name, own in rates.items():
        sentences += [f"{name}: {sentence}" if len(rates) > 1 else sentence for sentence in rate_warnings(own)]
    reasons: dict[str, list[str]] = {}
    for name, reason in first.skipped.items():
        reasons.setdefault(reason, []).append(name)
    sentences += [f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    parts = [
        [f"{first.images} images"],
        _score_table(reports, rates, shown, samples),
        [textwrap.fill(sentence, _WIDTH, break_on_hyphens=False) for sentence in sentences],
        _pair_table([pair for pair in comparisons if pair.number in shown], samples) if pairs else [],
        _signatures(first, shown),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _score_table(reports: Reports, rates: Rates, shown: Sequence[str], samples: int) -> list[str]:
    """A column for each system (and the intervals of a single one), a row for each number, then the rates."""
    widest = max(8, (_WIDTH - _FIRST_COLUMN) // len(reports) - 2)
    heads = [textwrap.wrap(re.sub(r"\.(jsonl?|csv|tsv)$", "", name), widest) for name in reports]
    bounds = intervals(next(iter(reports.values())), samples) if len(reports) == 1 and samples else {}
    rows = [["", *line, *(["95% interval"] if bounds else [])] for line in zip_longest(*heads, fillvalue="")]
    rule = len(rows)
    for number in shown:
        values = ["-" if (value := report.scores[number]) is None else f"{value:.4f}" for report in reports.values()]
        own = bounds.get(number)
        rows.append([_title(number), *values, *([f"[{own.low:.4f}, {own.high:.4f}]" if own else ""] if bounds else [])])
    for rate, (title, digits) in _RATES.items() if rates else ():
        values = [f"{of_one[rate]:.{digits}f}" for of_one in rates.values()]
        rows.append([title, *values, *([""] if bounds else [])])
    return _aligned(rows, rule, rule + len(shown))


def _known(number: str) -> ScoreNumber:
    """What is declared of a number; those of reports that no score made have none but their names."""
    return numbers().get(number) or ScoreNumber(number, number)


def _title(number: str) -> str:
    """The name of a number in papers, and which way is better where that is down."""
    return _known(number).title + (" (lower)" if _known(number).lower_is_better else "")


def _best(reports: Reports, shown: Sequence[str], comparisons: Sequence[Comparison]) -> list[str]:
    """Which system is best at which numbers, those apart that are within chance of another system."""
    surely: dict[str, list[str]] = {}
    perhaps: dict[str, list[str]] = {}
    for number in shown:
        known = _known(number)
        rivals = [one for one in comparisons if one.number == number]
        values = {name: report.scores[number] for name, report in reports.items() if report.scores[number] is not None}
        if rivals:
            best = (min if known.lower_is_better else max)(values, key=values.__getitem__)  # type: ignore[arg-type]
            own = [one.p_holm < SIGNIFICANT for one in rivals if best in (one.first, one.second)]
            (surely if all(own) else perhaps).setdefault(best, []).append(known.title)
    chance = f"better than every other system (p < {SIGNIFICANT}, Holm)"
    return [
        *(f"{name} is the best in {', '.join(titles)}: {chance}." for name, titles in surely.items()),
        *(f"{name} leads in {', '.join(titles)}, by no more than chance may give." for name, titles in perhaps.items()),
    ]


def _pair_table(comparisons: Sequence[Comparison], samples: int) -> list[str]:
    """A row for each number of each pair; p is corrected for the number of pairs, "<" where no draw was as far."""
    rows = [["", "difference of", "", "95% interval", "p (Holm)"]]
    for pair in comparisons:
        interval = f"[{pair.low:+.4f}, {pair.high:+.4f}]"
        p = f"{'<' if pair.p <= 1 / samples else ''}{pair.p_holm:.4f}"
        rows.append([_title(pair.number), f"{pair.first} - {pair.second}", f"{pair.value:+.4f}", interval, p])
    return _aligned(rows, 1)


def _aligned(rows: Sequence[Sequence[str]], *rules: int) -> list[str]:
    """Rows as lines, the first column flush left and the others flush right, with rules before some of them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, (first, *others) in enumerate(rows):
        if number in rules:
            lines.append("─" * (sum(widths) + 2 * len(others)))
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def _signatures(report: ScoreReport, shown: Sequence[str]) -> list[str]:
    """How the numbers were made: what all share, then the rest of each."""
    first_with = {report.signatures[name]: name for name in reversed(shown)}
    made = {_known(name).title: signature.split("|") for signature, name in reversed(first_with.items())}
    shared = [part for part in next(iter(made.values()), []) if all(part in parts for parts in made.values())]
    rest = {title: [part for part in parts if part not in shared] for title, parts in made.items()}
    return [
        textwrap.fill(f"{title:10} {' '.join(parts)}", _WIDTH, subsequent_indent=" " * 11)
        for title, parts in {"signature": shared, **rest}.items()
        if parts
    ]
