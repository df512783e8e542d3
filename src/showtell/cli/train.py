"""`showtell train`: a recipe to a run folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import AsJson, Overrides, out_folder

if TYPE_CHECKING:
    from showtell.training import Recipe

PHOTOS = 3  # whose captions are printed before and after a run that started from a checkpoint


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
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Time some steps and print how long the run would take; train nothing."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a captioner by a recipe."""
    import json

    from showtell.processes import is_first_process
    from showtell.training import train as run
    from showtell.training.recipe_loading import load_recipe
    from showtell.training.run_folder import RECIPE

    if estimate:
        from showtell.training.estimate import estimate as measure

        measured = measure(load_recipe(recipe, overrides or ()))
        typer.echo(json.dumps({**vars(measured), "total": measured.total}) if as_json else str(measured))
        return
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
        trained = load_recipe(result.folder / RECIPE)
        typer.echo(_next_command(best, trained))
        _print_before_and_after(best, trained)
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


def _print_before_and_after(best: Path, recipe: Recipe) -> None:
    """Print captions of a few photos by the checkpoint that a run started from, and by its own; none if it had none.

    The photos are of the validation split, else those of a table of corrections that nobody has looked at, else those
    that it learned from.
    """
    from showtell.captioners import Captioner
    from showtell.datasets.splits import UNCHECKED
    from showtell.errors import CheckpointError, ImageError, printable
    from showtell.training.data import open_dataset_of

    data, start = recipe.data, recipe.training.start_from
    if start is None or data.features is not None:
        return
    splits = (data.validation_split, UNCHECKED, data.train_split)
    dataset = open_dataset_of(data)
    split = next(name for name in splits if name in dataset.splits)
    records = dataset[split][:PHOTOS]
    is_stored = dataset.format == "corrections"  # where files are not called as their photos were
    names = [record.image_id if is_stored else record.path.name for record in records]
    try:
        captioners = [Captioner.from_pretrained(checkpoint) for checkpoint in (start, best)]
    except CheckpointError:  # a resumed run does not need its start any more, which may be gone
        return
    captioned = [captioner.caption_photos([record.path for record in records]) for captioner in captioners]
    typer.echo(f"captions of {split} before and after:")
    for name, (_, before), (_, after) in zip(names, *captioned, strict=True):
        if not isinstance(before, ImageError) and not isinstance(after, ImageError):
            typer.echo(f"  {printable(name)}: {before[0].text} -> {after[0].text}")
