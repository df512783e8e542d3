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
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="grid|random|tpe|gp",
            help="How trials are chosen: every combination, at random, by a tree-structured Parzen estimator or by a "
            "Gaussian process.",
            show_default="random with --trials, otherwise grid",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Number of trials, for all samplers but grid.", show_default="required by them"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the sampler.")] = 0,
    metric: Annotated[
        str,
        typer.Option(
            metavar="cider|bleu_4|meteor|loss", help="Validation score by which trials are chosen and ordered."
        ),
    ] = "cider",
    retry: Annotated[bool, typer.Option("--retry", help="Train failed trials again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a recipe with many values of its keys; compare the runs. Run again, it resumes."""
    import json

    from showtell.training.sweep import sweep as run_sweep

    result = run_sweep(recipe, axes, out, sampler=sampler, trials=trials, seed=seed, metric=metric, retry=retry)
    if as_json:
        typer.echo(json.dumps({"sweep": str(result.folder), **result.to_json()}, ensure_ascii=False))
    else:
        typer.echo(table(result))
    if result.interrupted:
        raise typer.Exit(130)
    if all(row.status == "failed" for row in result.rows):
        raise typer.Exit(2)


def table(result: SweepResult) -> str:
    """A line for each trial: its values, its validation scores at its best epoch, and its folder or its error."""
    from showtell.training.sweep import in_yaml

    keys = list(result.rows[0].values)
    scores = [result.metric, *(name for name in _scores(result) if name != result.metric)]
    lines = [[*keys, *scores, "epoch", "run"]]
    for row in result.rows:
        row_scores = row.scores or {}
        lines.append(
            [
                *[in_yaml(row.values[key]) for key in keys],
                *[f"{row_scores[name]:.4f}" if name in row_scores else "-" for name in scores],
                "-" if row.epoch is None else str(row.epoch),
                f"failed: {row.error}" if row.error else row.run if row.status == "finished" else "waiting",
            ]
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]) - 1)]
    return "\n".join("  ".join([*map(str.ljust, line, widths), line[-1]]) for line in lines)


def _scores(result: SweepResult) -> list[str]:
    return next((list(row.scores) for row in result.rows if row.scores), [])
