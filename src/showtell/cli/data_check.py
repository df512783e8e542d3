"""`showtell data check`: what a dataset holds, and what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from showtell.datasets.check import Report, Spread


def check(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="A folder, or a file in any format that is read.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count a dataset's images and captions, open every image, and name what is wrong.

    Exits with 2 if the dataset has problems, which make it unusable; warnings it can live with.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from showtell.datasets import read_dataset
    from showtell.datasets.check import check_dataset
    from showtell.errors import DataError

    found = read_dataset(dataset)
    columns = (TextColumn("opening images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        report = check_dataset(found, lambda done, total: progress.update(task, completed=done, total=total))
    typer.echo(json.dumps(report.as_json(), ensure_ascii=False) if as_json else _in_words(dataset, report))
    if report.problems:
        number = "a problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
        raise DataError(f"{dataset} cannot be used: it has {number}, listed in the report.")


def _in_words(name: str, report: Report) -> str:
    """The report as people read it."""
    rows = [("split", "images", "captions")]
    rows += [(split, f"{images:,}", f"{captions:,}") for split, (images, captions) in report.splits.items()]
    rows += [("together", f"{report.images:,}", f"{report.captions:,}")]
    width = max(len(split) for split, _, _ in rows)
    lines = [f"{name} (format: {report.format})", ""]
    lines += [f"{split:{width}}  {images:>9}  {captions:>9}" for split, images, captions in rows]
    lines += [
        "",
        f"captions per image: {_spread_in_words(report.captions_per_image)}",
        f"words per caption:  {_spread_in_words(report.words_per_caption)}",
        "",
    ]
    lines += [f"problem: {sentence}" for sentence in report.problems]
    lines += [f"warning: {sentence}" for sentence in report.warnings]
    lines += ["No problems."] if not report.problems else []
    return "\n".join(lines)


def _spread_in_words(spread: Spread | None) -> str:
    if spread is None:
        return "none"
    return f"{spread.least} to {spread.most}, mean {spread.mean:.1f}, median {spread.median:g}"
