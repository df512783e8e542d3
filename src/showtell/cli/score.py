"""`showtell score`: predictions and references to numbers, each with its signature."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import AsJson, Split, out_file
from showtell.cli.score_model_options import ScoreModelChoice, open_score_models
from showtell.errors import DataError, notify

if TYPE_CHECKING:
    from showtell.scores import ImageFacts, ScoreReport

Metrics = Annotated[
    str | None,
    typer.Option(
        help="Names of metrics, separated by commas.",
        show_default="all whose needs are met but those that run only when named",
    ),
]
DocumentFrequencyFile = Annotated[
    Path | None,
    typer.Option(
        "--document-frequency",
        metavar="FILE",
        help="CIDEr's document frequencies: a JSON file of them, captions as JSON, or a dataset, whose train split "
        "counts.",
        show_default="the references",
    ),
]


def score(
    predictions: Annotated[
        Path,
        typer.Argument(
            help="COCO results JSON, JSON of {id: text}, or JSON, JSON lines or CSV of showtell caption.",
            metavar="PREDICTIONS",
            show_default=False,
        ),
    ],
    references: Annotated[
        Path,
        typer.Argument(
            help="COCO captions JSON, JSON of {id: \\[texts]}, or a dataset (with --split).",
            metavar="REFERENCES",
            show_default=False,
        ),
    ],
    metrics: Metrics = None,
    split: Split = "test",
    limit: Annotated[
        int | None,
        typer.Option(
            help="Score at most this many images of a dataset, those that evaluate --limit captions.",
            min=1,
            show_default="all",
        ),
    ] = None,
    common: Annotated[
        bool, typer.Option("--common", help="Score the images that both have, and say how many were left out.")
    ] = False,
    per_image: Annotated[Path | None, out_file("Write {id: {number: value}} to a JSON file.")] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            help="Predictions of another system: print the differences and their p-values.", show_default="none"
        ),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(help="Bootstrap draws for intervals and comparisons; 0 for no intervals.", min=0, max=1_000_000),
    ] = 1000,
    document_frequency: DocumentFrequencyFile = None,
    as_json: AsJson = False,
    *,
    score_models: ScoreModelChoice,
) -> None:
    """Score captions against references: coco-caption's numbers, without Java (SPICE excepted)."""
    import json
    from dataclasses import asdict

    from showtell.errors import UsageError
    from showtell.files import refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import compare as compare_reports
    from showtell.scores import diagnose, intervals
    from showtell.scores import score as score_captions
    from showtell.scores.files import read_document_frequency, read_scored_images
    from showtell.scores.prediction_files import read_prediction_file
    from showtell.scores.table import describe, describe_differences

    if compare is not None and bootstrap == 0:
        raise UsageError("--compare draws images to tell a difference from chance; give --bootstrap at least 1 draw.")
    if per_image is not None:
        inputs = (predictions, references, compare, document_frequency)
        refuse_overwriting(per_image, "--per-image", [path for path in inputs if path is not None])
    images = read_scored_images(references, split, limit)
    frequency = None if document_frequency is None else read_document_frequency(document_frequency)
    chosen = metric_names(metrics)
    captions, notes = read_prediction_file(predictions, images)
    others, more_notes = (None, []) if compare is None else read_prediction_file(compare, images)
    for note in notes + more_notes:
        notify(note)
    facts = images.facts
    if common:
        facts, captions, others = _common(facts, captions, others)
    models = open_score_models(score_models)

    def scored(texts: dict[str, str], progress: Callable[[int], None]) -> ScoreReport:
        return score_captions(texts, facts, chosen, document_frequency=frequency, models=models, progress=progress)

    with counting("scoring", None) as progress:
        report = scored(captions, progress)
        other = None if others is None else scored(others, progress)
    for warning in report.warnings:
        notify(warning)
    if per_image is not None:
        write_json(per_image, report.per_image)
    content = report.to_json()
    tables = (
        []
        if as_json
        else [
            describe(
                report,
                intervals(report, samples=bootstrap) if bootstrap else None,
                diagnose(captions.values(), training=images.training),
            )
        ]
    )
    if other is not None:
        differences = compare_reports(report, other, samples=bootstrap)
        content["compare"] = {
            "predictions": str(compare),
            "scores": other.scores,
            "differences": {name: asdict(difference) for name, difference in differences.items()},
        }
        tables.append(describe_differences(differences, str(compare)))
    typer.echo(json.dumps(content, ensure_ascii=False) if as_json else "\n".join(tables))


def _common(
    facts: dict[str, ImageFacts], captions: dict[str, str], others: dict[str, str] | None
) -> tuple[dict[str, ImageFacts], dict[str, str], dict[str, str] | None]:
    """Those images that have references and all predictions.

    Raises:
        DataError: there are none.
    """
    shared = [image for image in facts if image in captions and (others is None or image in others)]
    if not shared:
        raise DataError("No image has both a prediction and references, so there is nothing to score.")
    predicted = captions.keys() if others is None else captions.keys() | others.keys()
    notify(
        f"{len(shared)} images are scored; {len(facts) - len(shared)} images with references and "
        f"{len(predicted - set(shared))} with predictions are left out."
    )
    kept = None if others is None else {image: others[image] for image in shared}
    return {image: facts[image] for image in shared}, {image: captions[image] for image in shared}, kept


def metric_names(option: str | None) -> list[str] | None:
    """The names in a --metrics option, separated by commas; None, all whose needs are met, where it was not given."""
    from showtell.errors import UsageError

    if option is None:
        return None
    names = [name.strip() for name in option.split(",") if name.strip()]
    if not names:
        raise UsageError("--metrics names no metric; leave it out for all that can run, or give some: bleu,cider.")
    return names
