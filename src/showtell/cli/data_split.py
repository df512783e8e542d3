"""`showtell data split`: draw the splits of a dataset that has none, and write them as lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from showtell.cli.arguments import AsJson, out_folder


def split(
    dataset: Annotated[
        str, typer.Argument(metavar="DATASET", help="Dataset without splits of its own.", show_default=False)
    ],
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed of the splits.", min=0, show_default="split by the image names alone"),
    ] = None,
    val: Annotated[float, typer.Option(help="Share of the images for validation.", min=0, max=1)] = 0.1,
    test: Annotated[float, typer.Option(help="Share of the images for testing.", min=0, max=1)] = 0.1,
    out: Annotated[Path | None, out_folder("Folder for the lists.", default="that of the dataset")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw splits and write them as train.txt, val.txt and test.txt.

    Existing lists are not overwritten.
    """
    import json
    from collections import Counter

    from showtell.datasets import read_dataset
    from showtell.datasets.splits import NAMES, TEST_SHARE, VAL_SHARE, draw_splits, write_lists
    from showtell.errors import DataError, UsageError

    if val + test >= 1:
        raise UsageError(f"--val {val:g} and --test {test:g} leave nothing to train on; together they must be below 1.")
    content = read_dataset(dataset)
    if not content.records:
        raise DataError(" ".join([f"{dataset} has no images to split.", *content.problems[:1]]))
    if content.split_lists_folder is None:
        has = ", ".join(f"{images:,} {name}" for name, images in content.splits.items())
        raise DataError(f"{dataset} has splits already, its own or those of lists beside it ({has}); none were drawn.")
    if seed is None and (val, test) == (VAL_SHARE, TEST_SHARE):
        splits = {record.image_id: record.split for record in content.records}
    else:
        splits = draw_splits((record.image_id for record in content.records), seed, val, test)
    files = write_lists(content, splits, out or content.split_lists_folder)
    counts = Counter(splits.values())
    numbers = {name: counts[name] for name in NAMES}
    if as_json:
        typer.echo(json.dumps({"splits": numbers, "files": [str(file) for file in files]}))
        return
    for file in files:
        typer.echo(f"{file}: {numbers[file.stem]:,} images")
    typer.echo(
        "A checkpoint trained before this may have seen some of the new test images: train anew before scoring.",
        err=True,
    )
