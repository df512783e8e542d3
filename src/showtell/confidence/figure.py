"""How far confidence can be believed, as a plot and as a table."""

from __future__ import annotations

import io
from pathlib import Path

from showtell.confidence.calibration import Calibration
from showtell.errors import UsageError, nearest
from showtell.files import write_bytes

FIGURES = ("pdf", "png", "svg")


def plot_reliability(calibration: Calibration, file: Path) -> None:
    """Plot the share of good captions over the stated confidence, bin by bin, before calibration and after.

    Args:
        calibration: whose two reliabilities are plotted.
        file: a .png, .svg or .pdf, written whole or not at all.

    Raises:
        UsageError: another suffix.
        DataError: it cannot be written.
    """
    from matplotlib.figure import Figure

    check_figure_name(file)
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--")
    for name, reliability, style in (
        ("mean word probability", calibration.before, {"color": "0.45", "marker": "s", "markerfacecolor": "white"}),
        ("calibrated", calibration.reliability, {"color": "tab:blue", "marker": "o"}),
    ):
        error = reliability.expected_calibration_error
        x, y = zip(*((one.confidence, one.good) for one in reliability.bins), strict=True)
        axes.plot(x, y, label=f"{name}: error {error:.3f}", **style)  # type: ignore[arg-type]
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="confidence")
    axes.set_ylabel(f"share that is good: {calibration.meaning}")
    axes.set_title(f"{calibration.captions} captions, each judged by a map of the others", fontsize="medium")
    axes.legend(loc="upper left", frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format=file.suffix[1:].lower(), dpi=150)
    write_bytes(file, content.getvalue())


def check_figure_name(file: Path) -> None:
    """Make sure that a figure of that name can be written.

    Raises:
        UsageError: it has another suffix than `FIGURES`.
    """
    suffix = file.suffix[1:].lower()
    if suffix not in FIGURES:
        raise UsageError(f'A figure cannot be written as "{file.name}"; {nearest(suffix, FIGURES)}.')


def describe(calibration: Calibration) -> str:
    """Both reliabilities of a calibration as a table: errors, then bin by bin."""
    before, after = calibration.before, calibration.reliability
    rows = [
        ("expected calibration error", before.expected_calibration_error, after.expected_calibration_error),
        ("Brier score", before.brier, after.brier),
        ("Brier score of the share", before.brier_of_base_rate, after.brier_of_base_rate),
    ]
    return "\n".join(
        [
            f"{calibration.captions} captions; a good one: {calibration.meaning}",
            "",
            f"{'':26}  {'word probability':>16}  {'calibrated':>16}",
            *[f"{name:26}  {one:16.3f}  {other:16.3f}" for name, one, other in rows],
            "",
            f"{'captions':26}  {'stated':>7}  {'good':>7}  {'stated':>7}  {'good':>7}",
            *[
                f"{old.captions:<26}  {old.confidence:7.3f}  {old.good:7.3f}  {new.confidence:7.3f}  {new.good:7.3f}"
                for old, new in zip(before.bins, after.bins, strict=True)
            ],
        ]
    )
