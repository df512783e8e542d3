"""`showtell data check`: what a dataset holds, and what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import DATASET_HELP, AsJson

if TYPE_CHECKING:
    from showtell.datasets.caption_statistics import Spread
    from showtell.datasets.check import Report


def check(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help=DATASET_HELP, show_default=False)],
    no_images: Annotated[
        bool, typer.Option("--no-images", help="Check that the image files exist without opening them.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT", help="Compare the captions with the vocabulary of a checkpoint.", show_default="none"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a dataset: count images and captions, open every image, and list what is wrong.

    Exits with 2 if there are problems, which make the dataset unusable; warnings do not.
    """
    from showtell.datasets import read_dataset
    from showtell.datasets.check import check_dataset
    from showtell.errors import DataError
    from showtell.progress import counting

    options: dict[str, Any] = {}
    if against is not None:
        from showtell.checkpoint import find_checkpoint, load_checkpoint

        checkpoint = load_checkpoint(find_checkpoint(against))
        options = {"vocabulary": checkpoint.vocabulary, "max_length": checkpoint.decoding.max_length}
    found = read_dataset(dataset)
    with counting("opening images", len(found.records), quiet=no_images) as progress:
        report = check_dataset(found, open_images=not no_images, progress=progress, **options)
    typer.echo(json.dumps(report.as_json(), ensure_ascii=False) if as_json else _in_words(dataset, report, against))
    if report.problems:
        number = "a problem" if len(report.problems) == 1 else f"{len(report.problems)} problems"
        raise DataError(f"{dataset} cannot be used: it has {number}, listed in the report.")


def _in_words(name: str, report: Report, against: str | None) -> str:
    """The report as people read it."""
    rows = [("split", "images", "captions")]
    rows += [(split, f"{images:,}", f"{captions:,}") for split, (images, captions) in report.splits.items()]
    rows += [("together", f"{report.images:,}", f"{report.captions:,}")]
    width = max(len(split) for split, _, _ in rows)
    lines = [f"{name} (format: {report.format})", ""]
    lines += [f"{split:{width}}  {images:>9}  {captions:>9}" for split, images, captions in rows]
    unseen = _shares(report.unseen)
    lines += [
        "",
        f"captions per image: {_spread_in_words(report.captions_per_image)}",
        f"words per caption:  {_spread_in_words(report.words_per_caption)}",
        f"different words:    {report.vocabulary:,}, of which {report.usual_vocabulary:,} occur five times or more"
        + (f"; unseen in train: {unseen}" if unseen else ""),
        *_fit_in_words(report, against),
        "",
    ]
    lines += [f"problem: {sentence}" for sentence in report.problems]
    lines += [f"warning: {sentence}" for sentence in report.warnings]
    unopened = "" if report.images_opened else " The images were not opened."
    lines += [f"No problems.{unopened}"] if not report.problems else []
    return "\n".join(lines)


def _fit_in_words(report: Report, against: str | None) -> list[str]:
    fit = report.fit
    if fit is None:
        return []
    return [
        f"against {against}: it knows {fit.words:,} words, of which {fit.unused:.1%} do not occur here; unknown to it: "
        f"{_shares(fit.unknown)}; longer than its {fit.max_length} words: {_shares(fit.longer)}"
    ]


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.1%} of {split}" for split, share in shares.items())


def _spread_in_words(spread: Spread | None) -> str:
    if spread is None:
        return "none"
    return (
        f"{spread.least} to {spread.most}, mean {spread.mean:.1f}, median {spread.median:g}, 95% have {spread.p95} "
        "or fewer"
    )
