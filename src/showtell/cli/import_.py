"""`showtell import`: the weights of another project as a checkpoint, with a report of what was read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from showtell.cli.arguments import AsJson, out_folder


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="File of weights of another project, or the folder with it: model-best.pth, BEST_checkpoint.pth.tar.",
            show_default=False,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Settings of the encoder of --features-from (docs/features.md), such as weights=FILE.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, out_folder("Folder of the checkpoint.", default="needed without --dry-run")] = None,
    infos: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pickle with options and words, of ImageCaptioning.pytorch.",
            show_default="*infos*.pkl beside the weights",
        ),
    ] = None,
    wordmap: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JSON with the ids of words, of a-PyTorch-Tutorial-to-Image-Captioning.",
            show_default="*WORDMAP*.json beside the weights",
        ),
    ] = None,
    features_from: Annotated[
        str | None,
        typer.Option(
            metavar="ENCODER|STORE",
            help="Encoder that makes the features of the model from photos, or a store of such features.",
            show_default="stores with the features' usual name",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be imported and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a checkpoint of weights that others published.

    They are of ImageCaptioning.pytorch or a-PyTorch-Tutorial-to-Image-Captioning. Nothing of their files is run. The
    checkpoint opens, captions, explains and trains like any other (docs/any_captioner.md).
    """
    import json

    from showtell.errors import UsageError
    from showtell.features import ENCODERS, build_encoder
    from showtell.features.store import FeatureStore
    from showtell.importing import import_checkpoint
    from showtell.training.recipe_checks import make_encoder_config
    from showtell.training.recipe_loading import apply_overrides

    if out is None and not dry_run:
        raise UsageError("Missing option --out FOLDER, for the checkpoint; --dry-run prints what would be imported.")
    if out is not None and out.is_dir() and any(out.iterdir()):
        raise UsageError(f"The folder {out} is not empty; choose another name for --out, or remove it first.")
    has_store = features_from is not None and Path(features_from).is_dir() and features_from not in ENCODERS
    if settings and (features_from is None or has_store):
        raise UsageError(f"{settings[0]} is a setting of an encoder; name the encoder with --features-from.")
    encoder, store = None, None
    if has_store:
        store = FeatureStore(str(features_from)).info
    elif features_from is not None:
        wanted: dict[str, Any] = {"encoder": {"name": features_from, "trained": False}}
        apply_overrides(wanted, [f"encoder.{setting.removeprefix('encoder.')}" for setting in settings or ()])
        encoder = build_encoder(make_encoder_config(wanted["encoder"], "the encoder of --features-from"))
    imported = import_checkpoint(source, infos=infos, wordmap=wordmap, encoder=encoder, store=store)
    if out is not None and not dry_run:
        imported.save(out)
    if as_json:
        typer.echo(json.dumps({"checkpoint": None if dry_run else str(out), **imported.report}, ensure_ascii=False))
        return
    typer.echo(imported.describe())
    typer.echo("\nnothing was written (--dry-run)" if dry_run else f"\n{out}")
