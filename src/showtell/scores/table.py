"""Scores and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Mapping

from showtell.scores.bootstrap import Difference, Interval
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
    if report.skipped:
        reasons: dict[str, list[str]] = {}
        for name, reason in report.skipped.items():
            reasons.setdefault(reason, []).append(name)
        lines += ["", *[f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]]
    first_with = {signature: name for name, signature in reversed(report.signatures.items())}
    lines += ["", "signatures", *[f"{name:{width}}  {made}" for made, name in reversed(first_with.items())]]
    return "\n".join(lines)


def describe_differences(differences: Mapping[str, Difference], other: str) -> str:
    """The differences from another system as a table.

    Args:
        differences: from `compare`, number by number.
        other: what the other system is called.
    """
    width = max(map(len, differences), default=0)
    rows = [
        f"{name:{width}}  {one.value:+8.4f}  [{one.low:+.4f}, {one.high:+.4f}]  p = {one.p:.4f}"
        for name, one in differences.items()
    ]
    return "\n".join(["", f"minus {other}", *rows])


def _rate(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and value > 1 else f"{value:.4f}"
