"""`showtell score`: the captions of one system or several against references, each number with its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import AsJson, Split, out_file
from showtell.errors import DataError, UsageError, notify

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
ClipModel = Annotated[
    str | None,
    typer.Option(
        "--clip-model",
        metavar="NAME",
        help="CLIP of CLIPScore: a folder, or owner/name[@revision] on the Hub.",
        show_default="none",
    ),
]


def score(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            help="Captions, a file for each system: {id: text}, COCO results or other entries of an image and a "
            "caption, as JSON, JSON lines, CSV or TSV. Several are compared.",
            metavar="PREDICTIONS...",
            show_default=False,
        ),
    ],
    references: Annotated[
        Path,
        typer.Option(
            help="References: COCO captions JSON, JSON of {id: \\[texts]}, or a dataset (with --split).",
            show_default=False,
        ),
    ],
    metrics: Metrics = None,
    split: Split = "test",
    common: Annotated[
        bool, typer.Option("--common", help="Score the images that all have, and say how many were left out.")
    ] = False,
    keep_first: Annotated[
        bool, typer.Option("--keep-first", help="Of several captions of an image score the first.")
    ] = False,
    strip_tokens: Annotated[
        bool, typer.Option("--strip-tokens", help="Remove special tokens from captions, such as <start> and <unk>.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Print the difference of each pair of systems, with interval and p.")
    ] = False,
    per_image: Annotated[
        Path | None, out_file("Write {id: {number: value}} to a JSON file, of several systems by their names.")
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(help="Bootstrap draws for intervals and comparisons; 0 for no intervals.", min=0, max=1_000_000),
    ] = 1000,
    document_frequency: DocumentFrequencyFile = None,
    clip_model: ClipModel = None,
    as_json: AsJson = False,
) -> None:
    """Score captions against references; only SPICE needs Java.

    Of several systems it says who is the best at what, and whether by more than chance.
    """
    from itertools import chain

    from showtell.files import refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import metric_names
    from showtell.scores import score as score_captions
    from showtell.scores.files import read_prediction_file, read_scored_images

    if pairs and bootstrap == 0:
        raise UsageError("--pairs draws images to tell a difference from chance; give --bootstrap at least 1 draw.")
    if per_image is not None:
        given = [*predictions, references, document_frequency]
        refuse_overwriting(per_image, "--per-image", filter(None, given))
    names = metric_names(metrics)
    scoring = how_to_score(document_frequency, clip_model)
    images = read_scored_images(references, split)
    captions: dict[str, dict[str, str]] = {}
    has_own_name = len({file.name for file in predictions}) == len(predictions)
    for file in predictions:
        name = file.name if has_own_name else str(file)
        captions[name] = read_prediction_file(file, images, keep_first=keep_first, strip_tokens=strip_tokens)
    if len(captions) < len(predictions):
        raise UsageError("A file of predictions is named twice; each system is a file of its own.")
    images = images.chosen_by(chain.from_iterable(captions.values()), str(references))
    facts = images.facts
    if common:
        captions, facts = _shared(captions, facts)
    reports: dict[str, ScoreReport] = {}
    with counting("scoring systems", len(captions), quiet=len(captions) == 1) as progress:
        for name, own in captions.items():
            try:
                reports[name] = score_captions(own, facts, names, **scoring)
            except DataError as error:
                raise DataError(f"{name} against {references}: {error}") from error
            progress(1)
    if per_image is not None:
        of_images = {name: report.per_image for name, report in reports.items()}
        write_json(per_image, of_images if len(of_images) > 1 else next(iter(of_images.values())))
    every_number, training = names is not None, images.training
    show_scores(reports, captions, training, samples=bootstrap, as_json=as_json, every_number=every_number, pairs=pairs)


def _shared(
    captions: dict[str, dict[str, str]], facts: dict[str, ImageFacts]
) -> tuple[dict[str, dict[str, str]], dict[str, ImageFacts]]:
    """The captions and facts of the images that all systems have."""
    shared = [image for image in facts if all(image in own for own in captions.values())]
    if not shared:
        raise DataError(f"No image has a caption in each of {', '.join(captions)} and is one of those to score.")
    predicted = set().union(*captions.values())
    notify(
        f"{len(shared)} images are scored; {len(facts) - len(shared)} images with references and "
        f"{len(predicted - set(shared))} with predictions are left out."
    )
    kept = {name: {image: own[image] for image in shared} for name, own in captions.items()}
    return kept, {image: facts[image] for image in shared}


def how_to_score(document_frequency: Path | None, clip_model: str | None) -> dict[str, Any]:
    """The document frequencies of `scores.score` that options name, and the CLIP, opened before any work."""
    from showtell.scores.files import read_document_frequency

    how: dict[str, Any] = {}
    if document_frequency is not None:
        how["document_frequency"] = read_document_frequency(document_frequency)
    if clip_model is not None:
        from showtell.scores.encoders import ClipEncoder

        how["clip"] = ClipEncoder(clip_model)
    return how


def show_scores(
    reports: Mapping[str, ScoreReport],
    captions: Mapping[str, Mapping[str, str]],
    training: Sequence[str] | None,
    *,
    samples: int,
    as_json: bool,
    every_number: bool = False,
    pairs: bool = False,
    about: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Print the scores of systems with the rates of their captions, and warn of what they do not say."""
    import json

    from showtell.scores import diagnose
    from showtell.scores.report import as_json as json_of
    from showtell.scores.report import as_text

    for warning in dict.fromkeys(warning for report in reports.values() for warning in report.warnings):
        concerned = [name for name, report in reports.items() if warning in report.warnings]
        notify(warning if len(concerned) == len(reports) else f"{', '.join(concerned)}: {warning}")
    rates = {name: diagnose(own.values(), training=training) for name, own in captions.items()}
    if as_json:
        typer.echo(json.dumps(json_of(reports, rates, samples, about), ensure_ascii=False))
    else:
        typer.echo(as_text(reports, rates, samples, every_number=every_number, pairs=pairs))
