"""`showtell sweep`: a recipe trained with many values of chosen keys, and one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import AsJson, Recipe, out_folder

if TYPE_CHECKING:
    from showtell.training.sweep import SweepResult

IF_INTERRUPTED = "the same command resumes"


def sweep(
    recipe: Recipe,
    axes: Annotated[
        list[str],
        typer.Argument(
            help='Keys with values, such as model.hidden_size=256,512 or "training.learning_rate=log(1e-4..1e-2)".',
            metavar="KEY=VALUES...",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, out_folder("Folder of the sweep.", default="runs/NAME-sweep")] = None,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of trials.", show_default="every combination of the values"),
    ] = None,
    sampler: Annotated[
        str,
        typer.Option(
            metavar="random|tpe",
            help="How --trials are chosen: at random, or by a tree-structured Parzen estimator.",
        ),
    ] = "random",
    as_json: AsJson = False,
) -> None:
    """Train a recipe with many values of its keys; compare the runs. Run again, it resumes."""
    import json

    from showtell.training.sweep import sweep as run_sweep

    result = run_sweep(recipe, axes, out, trials=trials, sampler=sampler)
    if as_json:
        typer.echo(json.dumps({"sweep": str(result.folder), **result.to_json()}, ensure_ascii=False))
    else:
        typer.echo(table(result))
    if result.interrupted:
        raise typer.Exit(130)
    if all(row.error for row in result.rows):
        raise typer.Exit(2)


def table(result: SweepResult) -> str:
    """A line for each trial: its values, its validation scores at its best epoch, and its folder or its error."""
    from showtell.training.recipe_loading import as_yaml

    keys = list(result.rows[0].values)
    scores = list(dict.fromkeys([result.metric, *(result.rows[0].scores or {})]))  # the best trial is the first
    lines = [[*keys, *scores, "epoch", "run"]]
    for row in result.rows:
        numbers = [f"{row.scores[name]:.4f}" if row.scores else "-" for name in scores]
        end = f"failed: {row.error}" if row.error else row.run if row.scores else "waiting"
        epoch = "-" if row.epoch is None else str(row.epoch)
        lines.append([*[as_yaml(row.values[key]) for key in keys], *numbers, epoch, end])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join([*map(str.ljust, line[:-1], widths), line[-1]]) for line in lines)
