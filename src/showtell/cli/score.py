"""`showtell score`: the captions of one system or several against references, each number with its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import AsJson, Split, out_file
from showtell.cli.settings_options import SettingsOptions
from showtell.errors import DataError, UsageError, notify

if TYPE_CHECKING:
    from showtell.scores import ImageFacts, ScoreModels, ScoreReport

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
ObjectsFile = Annotated[
    Path | None,
    typer.Option(
        "--objects",
        metavar="FILE",
        help="COCO instances JSON: the objects of the images, for CHAIR.",
        show_default="the boxes of a dataset",
    ),
]
_MODELS = SettingsOptions("showtell.scores.model_settings:ScoreModelSettings", "Models of learned scores")
ScoreModelChoice = Annotated[dict[str, Any], _MODELS]


def score(
    predictions: Annotated[
        list[Path],
        typer.Argument(
            help="Captions, a file for each system: COCO results JSON, JSON of {id: text}, or JSON, JSON lines or CSV "
            "of showtell caption. Several are compared.",
            metavar="PREDICTIONS...",
            show_default=False,
        ),
    ],
    references: Annotated[
        Path | None,
        typer.Option(
            help="References: COCO captions JSON, JSON of {id: \\[texts]}, or a dataset (with --split).",
            show_default="none; they are needed",
        ),
    ] = None,
    metrics: Metrics = None,
    split: Split = "test",
    common: Annotated[
        bool, typer.Option("--common", help="Score the images that all have, and say how many were left out.")
    ] = False,
    per_image: Annotated[
        Path | None, out_file("Write {id: {number: value}} to a JSON file, of several systems by their names.")
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(help="Bootstrap draws for intervals and comparisons; 0 for no intervals.", min=0, max=1_000_000),
    ] = 1000,
    document_frequency: DocumentFrequencyFile = None,
    objects: ObjectsFile = None,
    as_json: AsJson = False,
    *,
    score_models: ScoreModelChoice,
) -> None:
    """Score captions against references; only SPICE needs Java.

    Of several systems it also prints the differences of each pair, with intervals and corrected p-values.
    """
    from showtell.files import refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import score as score_captions
    from showtell.scores.files import read_prediction_file, read_scored_images

    if references is None:
        *systems, last = predictions if len(predictions) > 1 else (*predictions, Path("REFERENCES"))
        command = f"showtell score {' '.join(map(str, systems))} --references {last}"
        raise UsageError(f"Name the references with --references: {command}.")
    if bootstrap == 0 and len(predictions) > 1:
        raise UsageError(
            "A comparison draws images to tell a difference from chance; give --bootstrap at least 1 draw."
        )
    if per_image is not None:
        given = [*predictions, references, *([document_frequency] if document_frequency else [])]
        refuse_overwriting(per_image, "--per-image", given)
    names = metric_names(metrics)
    scoring = how_to_score(document_frequency, score_models)
    images = read_scored_images(references, split)
    facts = with_object_files(images.facts, objects)
    captions: dict[str, dict[str, str]] = {}
    has_own_name = len({file.name for file in predictions}) == len(predictions)
    for file in predictions:
        captions[file.name if has_own_name else str(file)], notes = read_prediction_file(file, images)
        for note in notes:
            notify(note)
    if len(captions) < len(predictions):
        raise UsageError("A file of predictions is named twice; each system is a file of its own.")
    if common:
        captions, facts = _shared(captions, facts)
    reports: dict[str, ScoreReport] = {}
    with counting("scoring systems", len(captions), quiet=len(captions) == 1) as progress:
        for name, own in captions.items():
            reports[name] = score_captions(own, facts, names, **scoring)
            progress(1)
    if per_image is not None:
        of_images = {name: report.per_image for name, report in reports.items()}
        write_json(per_image, of_images if len(of_images) > 1 else next(iter(of_images.values())))
    show_scores(reports, captions, images.training, samples=bootstrap, as_json=as_json)


def _shared(
    captions: dict[str, dict[str, str]], facts: dict[str, ImageFacts]
) -> tuple[dict[str, dict[str, str]], dict[str, ImageFacts]]:
    """The captions and facts of the images that all systems have."""
    shared = [image for image in facts if all(image in own for own in captions.values())]
    if not shared:
        raise DataError("No image has both a prediction and references, so there is nothing to score.")
    predicted = set().union(*captions.values())
    notify(
        f"{len(shared)} images are scored; {len(facts) - len(shared)} images with references and "
        f"{len(predicted - set(shared))} with predictions are left out."
    )
    kept = {name: {image: own[image] for image in shared} for name, own in captions.items()}
    return kept, {image: facts[image] for image in shared}


# --- shared with evaluate and other verbs ---


def open_score_models(given: Mapping[str, Any]) -> ScoreModels | None:
    """The models that options name, opened before any work; None where there are none."""
    from showtell.scores import ScoreModels

    return ScoreModels(**given).open() if given else None


def how_to_score(document_frequency: Path | None, score_models: Mapping[str, Any]) -> dict[str, Any]:
    """The document frequencies and models of `scores.score` that options name."""
    from showtell.scores.files import read_document_frequency

    frequency = None if document_frequency is None else read_document_frequency(document_frequency)
    return {"document_frequency": frequency, "models": open_score_models(score_models)}


def with_object_files(facts: dict[str, ImageFacts], objects: Path | None) -> dict[str, ImageFacts]:
    """Images with the objects of a file where one is given, and a word on what was left out."""
    from showtell.scores.files import with_objects

    if objects is None:
        return facts
    known, notes = with_objects(facts, objects)
    for note in notes:
        notify(note)
    return known


def metric_names(option: str | None) -> list[str] | None:
    """The names in a --metrics option, separated by commas; None, all whose needs are met, where it was not given."""
    if option is None:
        return None
    names = [name.strip() for name in option.split(",") if name.strip()]
    if not names:
        raise UsageError("--metrics names no metric; leave it out for all that can run, or give some: bleu,cider.")
    return names


def show_scores(
    reports: Mapping[str, ScoreReport],
    captions: Mapping[str, Mapping[str, str]],
    training: Sequence[str] | None,
    *,
    samples: int,
    as_json: bool,
    about: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Print the scores of systems with the rates of their captions, and warn of what they do not say.

    Args:
        reports: of the systems on the same images, by name.
        captions: of each system, by image id.
        training: captions that the systems may have been trained on.
        samples: bootstrap draws.
        as_json: print JSON.
        about: what else JSON has of each system.
    """
    import json

    from showtell.scores import diagnose, table

    for warning in dict.fromkeys(warning for report in reports.values() for warning in report.warnings):
        concerned = [name for name, report in reports.items() if warning in report.warnings]
        notify(warning if len(concerned) == len(reports) else f"{', '.join(concerned)}: {warning}")
    rates = {name: diagnose(own.values(), training=training) for name, own in captions.items()}
    if as_json:
        typer.echo(json.dumps(table.as_json(reports, rates, samples, about), ensure_ascii=False))
    else:
        typer.echo(table.as_text(reports, rates, samples))
