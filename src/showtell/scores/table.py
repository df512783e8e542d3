"""Systems on the same images as one table for people, and the differences between each pair of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any, Self

from showtell.scores.bootstrap import POINT, POWER, SAMPLES, Comparison, Interval, compare_all, intervals
from showtell.scores.report import ScoreReport

if TYPE_CHECKING:
    from rich.table import Table

_WIDEST_NAME = 24  # characters of a system's name in a line


@dataclass(frozen=True)
class ScoreTable:
    """Scores with their intervals, rates of the captions, and the differences of each pair, by the systems' names."""

    reports: Mapping[str, ScoreReport]
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    bounds: Mapping[str, Mapping[str, Interval]] = field(default_factory=dict)
    comparisons: Sequence[Comparison] = ()

    @classmethod
    def of(
        cls, reports: Mapping[str, ScoreReport], rates: Mapping[str, Mapping[str, float]], samples: int = SAMPLES
    ) -> Self:
        """A table with intervals, and with differences where there are several systems.

        Args:
            reports: of the systems on the same images.
            rates: of the captions of each, from `diagnose`.
            samples: bootstrap draws, the same ones for all; 0 for no intervals of one system.

        Raises:
            DataError: the reports are of different images, or their numbers were made in different ways.
        """
        bounds = {name: intervals(report, samples) for name, report in reports.items()} if samples else {}
        return cls(reports, rates, bounds, compare_all(reports, samples) if len(reports) > 1 else ())

    def to_json(self, about: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
        """Plain data: of one system its scores, of several {"systems": [...], "comparisons": [...]}.

        Args:
            about: what else shall stand with each system.
        """
        systems = [
            {
                "system": name,
                **(about or {}).get(name, {}),
                **report.to_json(),
                "intervals": {number: asdict(interval) for number, interval in self.bounds.get(name, {}).items()},
                "rates": dict(self.rates.get(name, {})),
            }
            for name, report in self.reports.items()
        ]
        if len(systems) == 1:
            return systems[0]
        return {"systems": systems, "comparisons": [comparison.to_json() for comparison in self.comparisons]}

    def __str__(self) -> str:
        """The table, what was skipped and why, how each number was made, and the differences."""
        first = next(iter(self.reports.values()))
        parts = [f"{first.images} images", _rendered(self._scores()), _how_made(first)]
        if self.comparisons:
            pairs = len(self.reports) * (len(self.reports) - 1) // 2
            parts.append(_rendered(self._differences()))
            parts.append(
                f"p (Holm): corrected for the {pairs} pair{'s' if pairs > 1 else ''} of systems, for each number.\n"
                f"detects: the true difference that these images show in {POWER:.0%} of cases, at 5%.\n"
                f"images: how many would show a difference of {POINT:g} (one point of 100) as often."
            )
        return "\n\n".join(parts)

    def _scores(self) -> Table:
        """A column for each system (and the intervals of a single one), a row for each number, then the rates."""
        table = _empty_table("", *self.reports, widest=_WIDEST_NAME)
        first = next(iter(self.reports.values()))
        alone = len(self.reports) == 1 and any(self.bounds.values())
        if alone:
            table.add_column("95% interval", no_wrap=True)
        for number in first.scores:
            if number not in first.skipped:  # said below, with the reason
                values = [report.scores.get(number) for report in self.reports.values()]
                cells = ["-" if value is None else f"{value:.4f}" for value in values]
                own = next(iter(self.bounds.values())).get(number) if alone else None
                table.add_row(number, *cells, *([f"[{own.low:.4f}, {own.high:.4f}]"] if own else []))
        table.add_section()
        for rate in next(iter(self.rates.values()), {}):
            table.add_row(rate, *[_rate(rates[rate]) for rates in self.rates.values()])
        return table

    def _differences(self) -> Table:
        """A row for each number of each pair."""
        table = _empty_table("", "difference of", "", "95% interval", "p (Holm)", "detects", "images")
        for comparison in self.comparisons:
            difference = comparison.difference
            table.add_row(
                comparison.number,
                f"{comparison.first} - {comparison.second}",
                f"{difference.value:+.4f}",
                f"[{difference.low:+.4f}, {difference.high:+.4f}]",
                f"{comparison.p_holm:.4f}",
                f"{comparison.detectable:.4f}",
                f"{comparison.images_for():,}",
            )
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
