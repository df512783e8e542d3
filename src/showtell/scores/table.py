"""Systems on the same images as one table for people, and the differences between each pair of them; or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from io import StringIO
from typing import TYPE_CHECKING, Any

from showtell.scores.bootstrap import SAMPLES, Comparison, compare_all, intervals
from showtell.scores.report import ScoreReport

if TYPE_CHECKING:
    from rich.table import Table

Reports = Mapping[str, ScoreReport]  # by the systems' names
Rates = Mapping[str, Mapping[str, float]]  # of the captions of each system, from `diagnose`
_WIDEST_NAME = 24  # characters of a system's name in a line


def as_json(
    reports: Reports, rates: Rates, samples: int = SAMPLES, about: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Of one system its scores, of several {"systems": [...], "comparisons": [...]}; with what else is known of each.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
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
    return {"systems": systems, "comparisons": list(map(asdict, compare_all(reports, samples)))}


def as_text(reports: Reports, rates: Rates, samples: int = SAMPLES) -> str:
    """The table, what was skipped and why, how each number was made, and the differences.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
    """
    first = next(iter(reports.values()))
    parts = [f"{first.images} images", _rendered(_score_table(reports, rates, samples)), _how_made(first)]
    if len(reports) > 1:
        pairs = len(reports) * (len(reports) - 1) // 2
        parts.append(_rendered(_difference_table(compare_all(reports, samples))))
        parts.append(f"p (Holm): corrected for {pairs} pair{'s' if pairs > 1 else ''} of systems, for each number.")
    return "\n\n".join(parts)


def _score_table(reports: Reports, rates: Rates, samples: int) -> Table:
    """A column for each system (and the intervals of a single one), a row for each number, then the rates."""
    table = _empty_table("", *reports, widest=_WIDEST_NAME)
    first = next(iter(reports.values()))
    bounds = intervals(first, samples) if len(reports) == 1 and samples else {}
    if bounds:
        table.add_column("95% interval", no_wrap=True)
    for number in first.scores:
        if number not in first.skipped:  # which is printed below, with the reason
            values = [report.scores.get(number) for report in reports.values()]
            own = bounds.get(number)
            interval = [f"[{own.low:.4f}, {own.high:.4f}]"] if own else []
            table.add_row(number, *["-" if value is None else f"{value:.4f}" for value in values], *interval)
    table.add_section()
    for rate in next(iter(rates.values()), {}):
        table.add_row(rate, *[_rate(own[rate]) for own in rates.values()])
    return table


def _difference_table(comparisons: Sequence[Comparison]) -> Table:
    """A row for each number of each pair."""
    table = _empty_table("", "difference of", "", "95% interval", "p (Holm)")
    for pair in comparisons:
        systems, interval = f"{pair.first} - {pair.second}", f"[{pair.low:+.4f}, {pair.high:+.4f}]"
        table.add_row(pair.number, systems, f"{pair.value:+.4f}", interval, f"{pair.p_holm:.4f}")
    return table


def _empty_table(first: str, *others: str, widest: int | None = None) -> Table:
    """A table with a column flush left and others flush right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.HORIZONTALS, show_edge=False, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", max_width=widest, overflow="fold")
    return table


def _rendered(table: Table) -> str:
    """A table as text, as wide as it wants to be."""
    from rich.console import Console

    console = Console(file=StringIO(), width=10_000, color_system=None, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _how_made(report: ScoreReport) -> str:
    """What was skipped and why, and the signature of each number."""
    reasons: dict[str, list[str]] = {}
    for name, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(name)
    skipped = [f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    first_with = {signature: name for name, signature in reversed(report.signatures.items())}
    made = [f"{name}  {signature}" for signature, name in reversed(first_with.items())]
    return "\n".join([*skipped, *([""] if skipped else []), "signatures", *made])


def _rate(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and value > 1 else f"{value:.4f}"
