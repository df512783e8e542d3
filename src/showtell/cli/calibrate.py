"""`showtell calibrate`: fit the confidence of captions on a validation split, and say how far it goes."""

from __future__ import annotations

from typing import Annotated

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Dataset, Dtype, FeatureStore, Limit
from showtell.cli.decoding_options import DecodingOfOne, open_captioner


def calibrate(
    checkpoint: Checkpoint,
    dataset: Dataset,
    split: Annotated[
        str, typer.Option(help="Split to fit on, with images that the checkpoint was not trained on.")
    ] = "val",
    features: FeatureStore = None,
    dtype: Dtype = None,
    limit: Limit = None,
    as_json: AsJson = False,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Fit the chance that a caption is good, which captions then have.

    It is kept in the checkpoint as calibration.json and belongs to the search that it was fitted with.
    """
    import json

    from showtell.confidence.calibration import describe, save_calibration
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError
    from showtell.evaluation import calibrate as fit
    from showtell.features.store import FeatureStore
    from showtell.progress import counting

    opened = open_dataset(dataset, with_photos=features is None)
    records = opened.limited(limit)[split]
    captioner = open_captioner(checkpoint, dtype=dtype)
    about = captioner.about
    if about.folder is None:
        raise UsageError(f"{checkpoint} keeps its weights elsewhere, and a calibration is kept beside them.")
    store = None if features is None else FeatureStore(features)
    with counting("captioning", len(records)) as progress:
        fitted = fit(captioner, records, store=store, progress=progress, **decoding)
    file = save_calibration(about.folder, about.fingerprints["weights"], fitted)
    if as_json:
        content = {name: value for name, value in fitted.to_json().items() if name != "familiarity"}
        typer.echo(json.dumps({"file": str(file), "split": split, **content}))
    else:
        typer.echo(f"{describe(fitted)}\n\n{file}")
