"""Scores and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from string import ascii_uppercase

from showtell.scores.bootstrap import Difference, Interval
from showtell.scores.comparison import POINT, POWER, Comparison
from showtell.scores.human_correlation import HumanCorrelation
from showtell.scores.judgements import Judgements
from showtell.scores.report import ScoreReport


def describe(
    report: ScoreReport, bounds: Mapping[str, Interval] | None = None, rates: Mapping[str, float] | None = None
) -> str:
    """The scores as a table, with intervals and rates if given, what was skipped, and how each number was made."""
    width = max(len(name) for name in (*report.scores, *(rates or ())))
    lines = [f"{report.images} images", ""]
    for name, value in report.scores.items():
        if name in report.skipped:  # said below, with the reason
            continue
        line = f"{name:{width}}  {'-' if value is None else f'{value:.4f}':>8}"
        if bounds and name in bounds:
            line += f"  [{bounds[name].low:.4f}, {bounds[name].high:.4f}]"
        lines.append(line)
    if rates:
        lines += ["", *[f"{name:{width}}  {_rate(value):>8}" for name, value in rates.items()]]
    return "\n".join([*lines, *_how_made(report, width)])


def _how_made(report: ScoreReport, width: int) -> list[str]:
    """What was skipped and why, and the signature of each number, as lines; names have this many characters."""
    reasons: dict[str, list[str]] = {}
    for name, reason in report.skipped.items():
        reasons.setdefault(reason, []).append(name)
    skipped = [f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    first_with = {signature: name for name, signature in reversed(report.signatures.items())}
    made = [f"{name:{width}}  {signature}" for signature, name in reversed(first_with.items())]
    return [*(["", *skipped] if skipped else []), "", "signatures", *made]


def describe_several(
    reports: Mapping[str, ScoreReport],
    bounds: Mapping[str, Mapping[str, Interval]],
    rates: Mapping[str, Mapping[str, float]],
) -> str:
    """The scores of several systems on the same images as a table with a column for each, and how they were made.

    Args:
        reports: by the names of the systems.
        bounds: intervals of the numbers of each.
        rates: of the captions of each.
    """
    first = next(iter(reports.values()))
    names = [name for name in first.scores if name not in first.skipped]
    rows = [["", *reports]]
    for name in names:
        cells = []
        for title, report in reports.items():
            value, own = report.scores.get(name), bounds[title].get(name)
            interval = "" if own is None else f" [{own.low:.4f}, {own.high:.4f}]"
            cells.append(("-" if value is None else f"{value:.4f}") + interval)
        rows.append([name, *cells])
    rows.append([])
    for name in next(iter(rates.values())):
        rows.append([name, *[_rate(of[name]) if name in of else "-" for of in rates.values()]])
    widths = [max(len(row[column]) for row in rows if row) for column in range(len(reports) + 1)]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join([f"{first.images} images", "", *lines, *_how_made(first, widths[0])])


def describe_systems(reports: Mapping[str, ScoreReport], bounds: Mapping[str, Mapping[str, Interval]]) -> str:
    """The scores of systems on the same images, a line for each number of each, and how they were made.

    Args:
        reports: by the names of the systems.
        bounds: intervals of the numbers of each.
    """
    first = next(iter(reports.values()))
    letters = dict(zip(reports, system_letters(len(reports)), strict=True))
    width = max(map(len, letters.values()))
    names = [name for name in first.scores if name not in first.skipped]
    longest = max(map(len, names), default=0)
    lines = [f"{first.images} images", "", *[f"{letter:{width}}  {name}" for name, letter in letters.items()]]
    for name in names:
        lines.append("")
        for title, report in reports.items():
            value, interval = report.scores.get(name), bounds[title].get(name)
            cells = [f"{name:{longest}}", f"{letters[title]:{width}}", f"{'-' if value is None else f'{value:.4f}':>8}"]
            cells += [] if interval is None else [f"[{interval.low:.4f}, {interval.high:.4f}]"]
            lines.append("  ".join(cells))
    return "\n".join([*lines, *_how_made(first, longest)])


def describe_comparisons(comparisons: Sequence[Comparison], systems: Sequence[str]) -> str:
    """Every pair's differences, with what a point would need, in 80 columns.

    Args:
        comparisons: from `compare_all`.
        systems: their names, in the order of their letters.
    """
    letters = dict(zip(systems, system_letters(len(systems)), strict=True))
    rows = [("", "", "diff", "95% interval", "p (Holm)", "detects", "images")]
    for one in comparisons:
        value = one.difference
        rows.append(
            (
                one.number,
                f"{letters[one.first]} - {letters[one.second]}",
                f"{value.value:+.4f}",
                f"[{value.low:+.4f}, {value.high:+.4f}]",
                f"{one.p_holm:.4f}",
                f"{one.detectable:.4f}",
                f"{one.images_for():,}",
            )
        )
    pairs = len(systems) * (len(systems) - 1) // 2
    legend = (
        f"p (Holm): corrected for the {pairs} pair{'s' if pairs > 1 else ''} of systems, for each number.",
        f"detects: the true difference that these images show in {POWER:.0%} of cases, at 5%.",
        f"images: how many would show a difference of {POINT:g} (one point of 100) as often.",
    )
    return "\n".join(["", *_aligned(rows, left=2), "", *legend])


def describe_correlations(correlation: HumanCorrelation, report: ScoreReport, judgements: Judgements) -> str:
    """How well each number agrees with people, and how much worse than the best one, in 80 columns."""
    images = len({one.image for one in judgements.captions})
    ratings = sum(len(one.ratings) for one in judgements.captions)
    tau, other = correlation.tau, "tau_b" if correlation.tau == "tau_c" else "tau_c"
    rows: list[tuple[str, ...]] = [("", tau, "95% interval", other, "spearman", "pairs")]
    for number, of in correlation.agreement.items():
        interval = f"[{of[tau].low:+.4f}, {of[tau].high:+.4f}]" if tau in of else ""
        measures = (f"{of[one].value:+.4f}" if one in of else "-" for one in (tau, other, "spearman"))
        first, *rest = measures
        accuracy = of.get("pairwise_accuracy")
        rows.append((number, first, interval, *rest, "-" if accuracy is None else f"{accuracy.value:.1%}"))
    lines = [f"{judgements.name}: {len(judgements.captions)} captions of {images} images, {ratings} ratings", ""]
    lines += [*_aligned(rows), "", "pairs: of two captions of an image that people rate differently, how often the"]
    lines += ["number orders them alike; half where it does not tell them apart"]
    if correlation.differences:
        rows = [("", f"{tau} - {correlation.best}", "95% interval", "p (Holm)")]
        for number, one in sorted(correlation.differences.items(), key=lambda item: -item[1].value):
            p = correlation.p_holm[number]
            rows.append((number, f"{one.value:+.4f}", f"[{one.low:+.4f}, {one.high:+.4f}]", f"{p:.4f}"))
        lines += ["", *_aligned(rows)]
    lines += (
        ["", *[f"skipped {number}: {reason}" for number, reason in correlation.skipped.items()]]
        if (correlation.skipped)
        else []
    )
    return "\n".join([*lines, *_how_made(replace(report, skipped={}), max(map(len, report.scores)))])


def _aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Rows as lines in which columns stand below each other, the first few flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def system_letters(systems: int) -> list[str]:
    """Short names of systems: A to Z, or numbers where there are more."""
    return list(ascii_uppercase[:systems]) if systems <= len(ascii_uppercase) else list(map(str, range(1, systems + 1)))


def describe_differences(differences: Mapping[str, Difference], other: str, system: str = "") -> str:
    """The differences from another system as a table.

    Args:
        differences: from `compare`, number by number.
        other: what the other system is called.
        system: what the first is called, where that is not clear.
    """
    width = max(map(len, differences), default=0)
    rows = [
        f"{name:{width}}  {one.value:+8.4f}  [{one.low:+.4f}, {one.high:+.4f}]  p = {one.p:.4f}"
        for name, one in differences.items()
    ]
    return "\n".join(["", f"{system} minus {other}".strip(), *rows])


def _rate(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and value > 1 else f"{value:.4f}"
