"""`showtell doctor`: what is installed, and why a score may be low."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from showtell.cli.arguments import CHECKPOINT_HELP, AsJson, FeatureStore, require_checkpoint


def doctor(
    checkpoint: Annotated[
        str | None,
        typer.Argument(help=CHECKPOINT_HELP, show_default="none: only check the machine", callback=require_checkpoint),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATASET", help="Dataset to score the checkpoint on.", show_default="none")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the dataset.", show_default="test, else val")] = None,
    features: FeatureStore = None,
    as_json: AsJson = False,
) -> None:
    """Say what is installed, and why a score may be low.

    Given a checkpoint, and with --data the dataset on which it is scored, each likely cause is a sentence with what to
    do. Exits with 0 whatever they are; 2 if something cannot be read at all.
    """
    import yaml

    from showtell.captioners import Captioner
    from showtell.datasets import read_dataset
    from showtell.doctor import checkpoint_causes, dataset_causes, describe_captioner, inspect_machine
    from showtell.errors import UsageError
    from showtell.features.store import FeatureStore as FeatureStoreReader

    if data is None and (split is not None or features is not None):
        raise UsageError("--split and --features go with --data DATASET.")
    if checkpoint is None and data is not None:
        raise UsageError(
            "A dataset is diagnosed for a checkpoint: showtell doctor CHECKPOINT --data DATASET; a dataset "
            "alone is for showtell data check."
        )
    parts, causes = {"machine": inspect_machine()}, list[str]()
    if checkpoint is not None:
        captioner = Captioner.from_pretrained(checkpoint)
        parts["checkpoint"] = describe_captioner(captioner)
        causes += checkpoint_causes(captioner)
        if data is not None:
            dataset = read_dataset(data, with_photos=features is None)
            scored = split or next(filter(dataset.splits.get, ("test", "val", *dataset.splits)), "test")
            store = None if features is None else FeatureStoreReader(features)
            parts["data"], more = dataset_causes(captioner, dataset, scored, store)
            causes += more
    if as_json:
        typer.echo(json.dumps({**parts, "causes": causes}, ensure_ascii=False))
        return
    typer.echo(yaml.safe_dump(parts, sort_keys=False, allow_unicode=True, width=1000).rstrip())
    for cause in causes:
        typer.secho(f"cause: {cause}", fg="yellow")
    if checkpoint is not None and not causes:
        typer.echo("There is nothing that would keep scores low.")
