"""`showtell quickstart`: the main job on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from showtell.cli.arguments import AsJson, Overrides, out_folder

IF_INTERRUPTED = "the same command resumes"


def quickstart(
    overrides: Overrides = None,
    out: Annotated[Path, out_folder("Folder for dataset, run and page.")] = Path("showtell-quickstart"),
    images: Annotated[int, typer.Option(help="Number of scenes to draw, all splits together.", min=20)] = 10_000,
    as_json: AsJson = False,
) -> None:
    """Caption photos, then draw scenes, train a captioner on them, show how well it does."""
    import json

    from showtell.processes import lock_folder
    from showtell.quickstart.photos import caption_photos

    with lock_folder(out, "running a quickstart in", "another --out"):
        photos = caption_photos(out / "photos")
        if not as_json:
            for example in photos["examples"]:
                typer.echo("\t".join(example.values()))
            typer.echo(f"\nWhere it looked: {photos['page']}\n")
        from showtell.quickstart.run import next_steps, run_quickstart  # what trains; photos need none of it

        results = {"photos": photos, **run_quickstart(out, images=images, overrides=overrides or ())}
    if as_json:
        typer.echo(json.dumps(results))
        return
    for example in results["examples"]:
        typer.echo(f"{example['image']}\t{example['caption']}")
    typer.echo()
    columns = ("truth", "truth_statements", "truth_compositional", "bleu_4", "cider")
    typer.echo(f"{'':24}" + "".join(f"{name.removeprefix('truth_'):>15}" for name in columns))
    for name, numbers in {"this model": results["scores"], **results["baselines"]}.items():
        typer.echo(f"{name:24}" + "".join(f"{numbers[column]:15.3f}" for column in columns))
    typer.echo(f"\n{results['seconds']:.0f} s. The report: {results['report']}\n")
    typer.echo(next_steps(out))
