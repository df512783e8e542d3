"""`showtell data split`: draw the splits of a dataset that has none, and write them as lists."""

from __future__ import annotations

from typing import Annotated

import typer

from showtell.cli.arguments import AsJson


def split(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Dataset without splits of its own.", show_default=False)
    ],
    val: Annotated[float, typer.Option(help="Share of the images for validation.", min=0, max=1)] = 0.1,
    test: Annotated[float, typer.Option(help="Share of the images for testing.", min=0, max=1)] = 0.1,
    as_json: AsJson = False,
) -> None:
    """Draw splits by the images' names; write them into the dataset's folder as train.txt, val.txt and test.txt."""
    import json

    from showtell.datasets import read_dataset
    from showtell.datasets.splits import write_lists
    from showtell.errors import UsageError

    if val + test >= 1:
        raise UsageError(f"--val {val:g} and --test {test:g} leave nothing to train on; together they must be below 1.")
    images = write_lists(read_dataset(dataset), val, test)
    if as_json:
        counts = {file.stem: count for file, count in images.items()}
        typer.echo(json.dumps({"splits": counts, "files": list(map(str, images))}))
        return
    for file, count in images.items():
        typer.echo(f"{file}: {count:,} images")
    typer.echo(
        "A checkpoint trained before this may have seen some of the new test images: train again before scoring.",
        err=True,
    )
