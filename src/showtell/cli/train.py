"""`showtell train`: a recipe to a run folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import AsJson, Overrides, out_folder

if TYPE_CHECKING:
    from showtell.training import Recipe


def train(
    recipe: Annotated[
        Path,
        typer.Argument(
            help="YAML file, name of a recipe of showtell such as folder/sat_soft, or folder of a run to resume.",
            metavar="RECIPE",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    out: Annotated[Path | None, out_folder("Run folder.", default="runs/NAME")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume the run in that folder; with a greater training.epochs it is trained for longer."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a captioner by a recipe."""
    import json

    from showtell.processes import is_first_process
    from showtell.training import train as run
    from showtell.training.recipe_loading import load_recipe
    from showtell.training.run_folder import RECIPE

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
        typer.echo(_next_command(best, load_recipe(result.folder / RECIPE)))
    if result.interrupted:
        raise typer.Exit(130)


def _next_command(best: Path, recipe: Recipe) -> str:
    """How to caption with a checkpoint, in a sentence: of features from elsewhere an image of their store."""
    from showtell.features.precomputed import PrecomputedConfig
    from showtell.features.store import FeatureStore

    command = f"showtell caption {shlex.quote(str(best))}"
    if not isinstance(recipe.encoder, PrecomputedConfig) or recipe.data.features is None:
        return f"caption a photo with it: {command} PHOTO.jpg"
    store = FeatureStore(recipe.data.features)
    image_id = next(iter(store.ids()))
    return f"caption an image of its features: {command} --features {shlex.join([str(store.path), image_id])}"
