"""`showtell data get`: download a public dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from showtell.cli.arguments import out_folder

if TYPE_CHECKING:
    from showtell.datasets.download import Source

IF_INTERRUPTED = "the same command resumes"


def get(
    name: Annotated[
        str | None, typer.Argument(metavar="flickr8k|flickr30k|coco", help="Name of the dataset.", show_default=False)
    ] = None,
    to: Annotated[Path | None, out_folder("Folder to write to.", default="data/NAME")] = None,
    only: Annotated[
        Literal["captions", "images"] | None, typer.Option(help="Fetch one part of the dataset.", show_default="both")
    ] = None,
    list_sources: Annotated[
        bool, typer.Option("--list", help="List what would be fetched and from where; fetch nothing.")
    ] = False,
) -> None:
    """Fetch a public dataset and verify its checksums. The same command resumes after an interruption."""
    from showtell.datasets.download import SOURCES, download_dataset
    from showtell.errors import UsageError, nearest

    if name is not None and name not in SOURCES:
        raise UsageError(f'There is no dataset "{name}" to download: {nearest(name, SOURCES)}.')
    if list_sources:
        chosen = SOURCES if name is None else {name: SOURCES[name]}
        typer.echo("\n\n".join(map(_describe, chosen, chosen.values())))
        return
    if name is None:
        raise UsageError(f"Which dataset? Known: {', '.join(SOURCES)}; showtell data get --list describes them.")
    source, folder = SOURCES[name], to or Path("data", name)
    typer.echo(f"{source.title}. {source.licence}", err=True)
    download_dataset(source, folder, only)
    if source.by_hand and only != "captions":
        typer.echo(f"{source.by_hand}.", err=True)
    typer.echo(f"{folder}\n\nNext: showtell data check {folder}")


def _describe(name: str, source: Source) -> str:
    """A dataset as `--list` prints it."""
    lines = [f"{name}: {source.title}.", f"  {source.licence}"]
    for archive in source.archives:
        lines.append(f"  {archive.target} ({archive.holds}), from {archive.name}, about {archive.megabytes:,} MB")
        lines += [f"    {url}" for url in archive.urls]
        lines.append(f"    {archive.digest}")
    return "\n".join([*lines, *([f"  {source.by_hand}."] if source.by_hand else [])])
