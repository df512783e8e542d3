"""`showtell export`: a captioner as a folder that others open without showtell."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from showtell.cli.arguments import Checkpoint


def export(
    checkpoint: Checkpoint,
    folder: Annotated[Path, typer.Argument(help="New folder.", metavar="FOLDER", show_default=False)],
    to: Annotated[
        Literal["transformers"], typer.Option("--to", help="Library that opens the folder.")
    ] = "transformers",
) -> None:
    """Write a captioner that learned here as a model of transformers, with its processor.

    Adapters are merged into the weights. The folder needs no showtell, and opens here like any other captioner.
    """
    from showtell.captioners import Captioner
    from showtell.captioners.hugging_face import TransformersCaptioner
    from showtell.captioners.hugging_face_adapters import export as write
    from showtell.errors import UsageError

    captioner = Captioner.from_pretrained(checkpoint, device="cpu")
    if not isinstance(captioner, TransformersCaptioner):
        raise UsageError(
            f"{checkpoint} has a model of showtell ({captioner.about.name}), which {to} does not have; captioners that "
            f"showtell train adapted from one of {to} are exported."
        )
    write(captioner, folder)
    typer.echo(folder)
