"""`showtell evaluate`: the papers' protocol in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Dataset, Ensemble, FeatureStore, Limit, Split, out_file
from showtell.cli.decoding_options import DecodingOfOne, open_captioner, settings_of
from showtell.cli.score import DocumentFrequencyFile, Metrics
from showtell.errors import notify

FEW = 30  # images, below which scores depend mostly on which images were chosen


def evaluate(
    checkpoint: Checkpoint,
    dataset: Dataset,
    split: Split = "test",
    ensemble: Ensemble = None,
    limit: Limit = None,
    metrics: Metrics = None,
    document_frequency: DocumentFrequencyFile = None,
    out: Annotated[Path | None, out_file("Write the captions as COCO results.")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="Also write captions_NAME_results.json for the COCO server; NAME is like val2014_mymodel.",
            metavar="NAME",
            show_default="not written",
        ),
    ] = None,
    features: FeatureStore = None,
    as_json: AsJson = False,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Caption a split, one caption for each image, write COCO results and score them."""
    import json
    import re

    from showtell.cli.score import metric_names
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError
    from showtell.evaluation import evaluate as run
    from showtell.features.store import FeatureStore
    from showtell.files import refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import diagnose, image_facts, intervals
    from showtell.scores.files import read_document_frequency, training_captions
    from showtell.scores.table import describe

    if server is not None and not re.fullmatch(r"[\w.-]+", server):
        raise UsageError(f'--server "{server}" goes into a file name: give letters, digits, dots, - and _ alone.')
    if out is not None:
        refuse_overwriting(out, "--out", [Path(checkpoint), dataset])
    opened = open_dataset(dataset)
    records = opened.limited(limit).split(split)
    chosen = metric_names(metrics)
    frequency = None if document_frequency is None else read_document_frequency(document_frequency)
    captioner = open_captioner(checkpoint, ensemble)
    settings = settings_of(captioner, {**decoding, "num_return_sequences": 1})
    with counting("captioning", len(records)) as progress:
        evaluation = run(
            captioner,
            records,
            settings,
            facts=image_facts(opened, records),
            metrics=chosen,
            document_frequency=frequency,
            store=None if features is None else FeatureStore(features),
            progress=progress,
        )
    files = [out] if out is not None else []
    files += [Path(f"captions_{server}_results.json")] if server is not None else []
    for file in files:
        write_json(file, evaluation.results())
    report = evaluation.report
    warnings = [*report.warnings]
    if report.images < FEW:
        warnings.append(
            f"{report.images} images are too few to judge a captioner by: on as many others the scores would be "
            "others; mind the intervals."
        )
    for warning in warnings:
        notify(warning)
    texts = [caption.text for caption in evaluation.captions.values()]
    rates = diagnose(texts, training=training_captions(opened))
    facts = {"split": split, "search": settings.kind, "num_beams": settings.num_beams, **decoding}
    if as_json:
        typer.echo(json.dumps({**report.to_json(), **facts, "rates": rates}, ensure_ascii=False))
        return
    typer.echo(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    typer.echo(describe(report, intervals(report), rates))
