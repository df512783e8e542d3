"""`showtell data scenes`: draw the embedded dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from showtell.cli.arguments import AsJson


def scenes(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write to, new or empty.", show_default=False)
    ],
    images: Annotated[int, typer.Option(help="Number of scenes to draw, all splits together.")] = 5000,
    seed: Annotated[int, typer.Option(help="Random seed of the scenes.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw pictures of shapes with captions whose truth can be checked.

    A folder that has the dataset is left as it is.
    """
    from showtell.progress import counting
    from showtell.scenes.dataset import CAPTIONS, split_sizes, write_scenes

    with counting("drawing scenes", images) as progress:
        write_scenes(folder, images=images, seed=seed, progress=progress)
    splits = split_sizes(images)
    if as_json:
        result = {"path": str(folder), "images": images, "captions": CAPTIONS * images, "seed": seed, "splits": splits}
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    for split, count in splits.items():
        typer.echo(f"{split:18}  {count:>7,} images  {CAPTIONS * count:>7,} captions")
    typer.echo(f"\nNext: showtell data check {folder}")
