"""`showtell data check`: what a dataset holds, with its problems and warnings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import DATASET_HELP, AsJson

if TYPE_CHECKING:
    from showtell.datasets.check import DatasetReport, Distribution


def check(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help=DATASET_HELP, show_default=False)],
    no_images: Annotated[
        bool, typer.Option("--no-images", help="Check that the image files exist without opening them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check a dataset: count it, open every image, list what is wrong.

    Exits with 2 if there are problems, which make the dataset unusable; warnings do not.
    """
    from showtell.datasets import read_dataset
    from showtell.datasets.check import check_dataset
    from showtell.errors import DataError
    from showtell.progress import counting

    content = read_dataset(dataset)
    with counting("opening images", len(content.records), quiet=no_images) as progress:
        report = check_dataset(content, open_images=not no_images, progress=progress)
    typer.echo(json.dumps(report.as_json(), ensure_ascii=False) if as_json else _describe(dataset, report))
    if report.problems:
        number = "a problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
        raise DataError(f"{dataset} cannot be used: it has {number}, listed in the report.")


def _describe(name: str, report: DatasetReport) -> str:
    """The report as lines for people."""
    rows = [("split", "images", "captions")]
    rows += [(split, f"{images:,}", f"{captions:,}") for split, (images, captions) in report.splits.items()]
    rows += [("total", f"{report.images:,}", f"{report.captions:,}")]
    width = max(len(split) for split, _, _ in rows)
    lines = [f"{name} (format: {report.format})", ""]
    lines += [f"{split:{width}}  {images:>9}  {captions:>9}" for split, images, captions in rows]
    unseen = _shares(report.unseen)
    lines += [
        "",
        f"captions per image: {_describe_distribution(report.captions_per_image)}",
        f"words per caption:  {_describe_distribution(report.words_per_caption)}",
        f"different words:    {report.vocabulary:,}, of which {report.frequent_words:,} occur five times or more"
        + (f"; unseen in train: {unseen}" if unseen else ""),
        "",
    ]
    lines += [f"problem: {sentence}" for sentence in report.problems]
    lines += [f"warning: {sentence}" for sentence in report.warnings]
    unopened = "" if report.images_opened else " The images were not opened."
    lines += [f"No problems.{unopened}"] if not report.problems else []
    return "\n".join(lines)


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.1%} of {split}" for split, share in shares.items())


def _describe_distribution(numbers: Distribution | None) -> str:
    if numbers is None:
        return "none"
    return (
        f"{numbers.min} to {numbers.max}, mean {numbers.mean:.1f}, median {numbers.median:g}, 95% have {numbers.p95} "
        "or fewer"
    )
