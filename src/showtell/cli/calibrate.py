"""`showtell calibrate`: fit the confidence of captions on a validation split, and say how far it goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Dataset, FeatureStore, Limit, out_file
from showtell.cli.decoding_options import DecodingOfOne, settings_of

if TYPE_CHECKING:
    from showtell.decoding.calibration import Calibration


def calibrate(
    checkpoint: Checkpoint,
    dataset: Dataset,
    split: Annotated[str, typer.Option(help="Images that the checkpoint was not trained on.")] = "val",
    good_cider: Annotated[
        float | None,
        typer.Option(
            help="A caption with at least this CIDEr-D, of at most 10, is good; 1 if not given. On scenes a good "
            "caption is a wholly true one.",
            min=0,
            max=10,
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        Path | None, out_file("Write the reliability diagram to a .png, .svg or .pdf file.", default="not drawn")
    ] = None,
    features: FeatureStore = None,
    limit: Limit = None,
    as_json: AsJson = False,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Fit the chance that a caption is good, for `showtell caption --calibrated`.

    It is kept in the checkpoint as calibration.json and belongs to the search that it was fitted with.
    """
    import json

    from showtell.captioner import Captioner
    from showtell.checkpoint import find_checkpoint
    from showtell.confidence import calibrate as fit
    from showtell.confidence import draw_reliability, refuse_figure, save_calibration
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError
    from showtell.features.store import FeatureStore
    from showtell.progress import counting
    from showtell.scenes import read_scenes

    if figure is not None:
        refuse_figure(figure)
    records = open_dataset(dataset).limited(limit).split(split)
    scenes = read_scenes(dataset) if dataset.is_dir() else None
    if scenes is not None and good_cider is not None:
        raise UsageError(f"{dataset} has scenes, where a good caption is a wholly true one; leave --good-cider out.")
    folder = find_checkpoint(checkpoint)
    captioner = Captioner.from_pretrained(folder)
    settings = settings_of(captioner, {**decoding, "num_return_sequences": 1})
    with counting("captioning", len(records)) as progress:
        fitted = fit(
            captioner,
            records,
            settings,
            scenes=scenes,
            good_cider=1.0 if good_cider is None else good_cider,
            store=None if features is None else FeatureStore(features),
            progress=progress,
        )
    if figure is not None:
        draw_reliability(fitted, figure)
    file = save_calibration(folder, fitted, settings)
    if as_json:
        facts = {"file": str(file), "figure": None if figure is None else str(figure), "split": split}
        typer.echo(json.dumps({**facts, **fitted.to_json()}))
        return
    typer.echo(in_words(fitted))
    typer.echo(f"\n{file}")


def in_words(calibration: Calibration) -> str:
    """What the calibration is worth, as a table: both reliabilities, then bin by bin."""
    before, after = calibration.before, calibration.reliability
    rows = [
        ("expected calibration error", before.expected_calibration_error, after.expected_calibration_error),
        ("Brier score", before.brier, after.brier),
        ("Brier score of the share", before.brier_of_base_rate, after.brier_of_base_rate),
    ]
    return "\n".join(
        [
            f"{calibration.captions} captions; a good one: {calibration.meaning}",
            "",
            f"{'':26}  {'word probability':>16}  {'calibrated':>16}",
            *[f"{name:26}  {one:16.3f}  {other:16.3f}" for name, one, other in rows],
            "",
            f"{'captions':26}  {'said':>7}  {'good':>7}  {'said':>7}  {'good':>7}",
            *[
                f"{old.captions:<26}  {old.confidence:7.3f}  {old.good:7.3f}  {new.confidence:7.3f}  {new.good:7.3f}"
                for old, new in zip(before.bins, after.bins, strict=True)
            ],
        ]
    )
