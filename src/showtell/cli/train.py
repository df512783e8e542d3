"""`showtell train`: a recipe to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    recipe: Annotated[
        Path,
        typer.Argument(
            help="A YAML file, or the name of a recipe of showtell such as folder/sat_soft.",
            metavar="RECIPE",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Changes to the recipe, such as training.epochs=3.",
            metavar="[KEY=VALUE]...",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run folder; runs/ and the recipe's name if not given.", show_default=False),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run in that folder stopped.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a captioner by a recipe."""
    import json

    from showtell.training import train as run
    from showtell.training.launch import is_first_process

    result = run(recipe, out, resume=resume, overrides=overrides or ())
    best = result.folder / "best"
    if not is_first_process():  # which says it
        pass
    elif as_json:
        content = {
            "run": str(result.folder),
            "checkpoint": str(best) if best.exists() else None,
            "epochs": result.epochs,
            "best_epoch": result.best_epoch,
            result.selection_metric: result.best,
            "interrupted": result.interrupted,
        }
        typer.echo(json.dumps(content))
    elif not result.interrupted:
        where = f"on validation, epoch {result.best_epoch}"
        score = "" if result.best is None else f" ({result.selection_metric} {result.best:.3f} {where})"
        typer.echo(f"{best}{score}")
        typer.echo(f"caption a photo with it: showtell caption {best} PHOTO.jpg")
    if result.interrupted:
        raise typer.Exit(130)
