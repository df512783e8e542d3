"""`showtell score`: predictions and references to numbers, each with its signature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import AsJson, Split, out_file
from showtell.cli.score_model_options import ScoreModelChoice, open_score_models
from showtell.errors import DataError, notify

if TYPE_CHECKING:
    from showtell.scores import ImageFacts, ScoreReport
    from showtell.scores.files import ScoredImages

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
SynonymsFile = Annotated[
    Path | None,
    typer.Option(
        "--synonyms",
        metavar="FILE",
        help="Further words for categories of objects: lines such as dog, puppy, hound.",
        show_default="those for COCO's 80",
    ),
]


def score(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Captions of one system or several: COCO results JSON, JSON of {id: text}, JSON, JSON lines or CSV of "
            "showtell caption, samples of lmms-eval, predictions of VLMEvalKit. Then, unless --references names them, "
            "the references: COCO captions JSON, JSON of {id: \\[texts]}, or a dataset (with --split).",
            metavar="PREDICTIONS|REFERENCES",
            show_default=False,
        ),
    ] = None,
    references: Annotated[
        Path | None,
        typer.Option(
            help="References; all other files are then predictions, each of a system, and the systems are compared.",
            show_default="the last file, or those that a file of lmms-eval or VLMEvalKit has itself",
        ),
    ] = None,
    judgements: Annotated[
        Path | None,
        typer.Option(
            help="Captions that people rated (Flickr8k-Expert, Flickr8k-CF, Composite, Polaris, or a table with the "
            "columns image, caption, rating): print how well each score agrees with them.",
            show_default="none",
        ),
    ] = None,
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
        bool, typer.Option("--common", help="Score the images that all have, and say how many were left out.")
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
    objects: ObjectsFile = None,
    synonyms: SynonymsFile = None,
    as_json: AsJson = False,
    *,
    score_models: ScoreModelChoice,
) -> None:
    """Score captions against references: coco-caption's numbers, without Java (SPICE excepted)."""
    from showtell.errors import UsageError
    from showtell.files import refuse_overwriting
    from showtell.scores.files import read_document_frequency

    frequency = None if document_frequency is None else read_document_frequency(document_frequency)
    models = open_score_models(score_models)
    scoring = {"metrics": metric_names(metrics), "document_frequency": frequency, "models": models}
    if judgements is not None:
        options = {"--compare": compare, "--per-image": per_image}
        options |= {} if references is not None else {"--objects": objects, "--synonyms": synonyms}
        given = [*map(str, files or []), *(name for name, value in options.items() if value is not None)]
        if given or bootstrap == 0:
            raise UsageError(
                f"--judgements has captions of its own: leave {', '.join(given)} out; --references names references."
                if given
                else "--judgements draws images for intervals; give --bootstrap at least 1 draw."
            )
        images = None if references is None else _read_images(references, references, split, limit, objects, synonyms)
        _show_judgements(judgements, images, scoring, bootstrap, as_json, common=common)
        return
    predictions, references = _inputs(files or [], references)
    if bootstrap == 0 and (compare is not None or len(predictions) > 1):
        what = "A comparison" if compare is None else "--compare"
        raise UsageError(f"{what} draws images to tell a difference from chance; give --bootstrap at least 1 draw.")
    if len(predictions) > 1 and (compare is not None or per_image is not None):
        option = "--compare" if compare is not None else "--per-image"
        raise UsageError(f"{option} is for one system and {len(predictions)} are named; they are compared anyway.")
    if per_image is not None:
        inputs = (*predictions, references, compare, document_frequency)
        refuse_overwriting(per_image, "--per-image", [path for path in inputs if path is not None])
    images = _read_images(predictions[0], references, split, limit, objects, synonyms)
    systems = _read_systems([*predictions, *([] if compare is None else [compare])], images, common=common)
    if len(predictions) > 1:
        _show_systems(systems, scoring, bootstrap, as_json)
    else:
        _show_one(systems, images, scoring, per_image, compare, bootstrap, as_json)


def _inputs(files: list[Path], references: Path | None) -> tuple[list[Path], Path | None]:
    """Which files are predictions, and which has references; None where the one file has its own.

    Raises:
        UsageError: there are no predictions, or it is unclear which file has the references.
    """
    from showtell.errors import UsageError

    if not files:
        raise UsageError("Missing argument 'PREDICTIONS...': a file of captions. See showtell score --help.")
    if references is not None or len(files) == 1:
        twice = next((file for file in files if files.count(file) > 1), None)
        if twice is not None:
            raise UsageError(f"{twice} is named twice; each system is a file of its own.")
        return files, references
    if len(files) == 2:
        return files[:1], files[1]
    raise UsageError(
        f"{len(files)} files are named; to compare several systems, name the references with --references: "
        f"showtell score {files[0]} {files[1]} --references {files[-1]}."
    )


@dataclass(frozen=True)
class _System:
    """The captions of one system, and what is known of their images: further captions of it among that."""

    name: str
    captions: dict[str, str]
    facts: dict[str, ImageFacts]

    def report(self, scoring: Mapping[str, Any], title: str = "scoring") -> ScoreReport:
        """Its scores, with a bar of progress."""
        from showtell.progress import counting
        from showtell.scores import score as score_captions

        with counting(title, None) as progress:
            return score_captions(self.captions, self.facts, **scoring, progress=progress)


def _read_images(
    predictions: Path,
    references: Path | None,
    split: str,
    limit: int | None,
    objects: Path | None,
    synonyms: Path | None,
) -> ScoredImages:
    """The images to score, from references or from the predictions' own, with objects and words for them."""
    from showtell.errors import UsageError
    from showtell.scores import ImageFacts
    from showtell.scores.files import ScoredImages, read_scored_images
    from showtell.scores.prediction_files import read_kit_references

    if references is not None:
        images = read_scored_images(references, split, limit)
        return replace(images, facts=with_object_files(images.facts, objects, synonyms))
    own = read_kit_references(predictions) if predictions.is_file() else None
    if own is None:
        raise UsageError(
            f"{predictions} is named without references; name them after it: COCO captions JSON, JSON of "
            "{id: [texts]}, or a dataset. Files of lmms-eval and VLMEvalKit alone have their own."
        )
    facts = {image: ImageFacts(texts) for image, texts in own.items()}
    return ScoredImages(with_object_files(facts, objects, synonyms))


def with_object_files(
    facts: dict[str, ImageFacts], objects: Path | None, synonyms: Path | None
) -> dict[str, ImageFacts]:
    """Images with the objects and the words of files that are given, and a word on what was left out."""
    from showtell.scores.object_files import with_objects, with_words

    for add, file in ((with_objects, objects), (with_words, synonyms)):
        if file is not None:
            facts, notes = add(facts, file)
            for note in notes:
                notify(note)
    return facts


def _read_systems(files: list[Path], images: ScoredImages, *, common: bool) -> list[_System]:
    """Several systems on the same images; with `common` on those that all have.

    Raises:
        DataError: a file cannot be read, or the systems have no image in common.
    """
    from showtell.scores.prediction_files import read_prediction_sets

    sets, facts = [], images.facts
    for file in files:
        own, notes = read_prediction_sets(file, images)
        for note in notes:
            notify(note)
        sets.append(own)
    if common:
        shared = [image for image in facts if all(image in own for own in sets)]
        if not shared:
            raise DataError("No image has both a prediction and references, so there is nothing to score.")
        predicted = set().union(*sets)
        notify(
            f"{len(shared)} images are scored; {len(facts) - len(shared)} images with references and "
            f"{len(predicted - set(shared))} with predictions are left out."
        )
        facts = {image: facts[image] for image in shared}
        sets = [{image: own[image] for image in shared} for own in sets]
    return [_system(str(file), own, facts) for file, own in zip(files, sets, strict=True)]


def _system(name: str, sets: Mapping[str, tuple[str, ...]], facts: dict[str, ImageFacts]) -> _System:
    """The first caption of each image; the others are what it says when asked again, if all images have some."""
    captions = {image: texts[0] for image, texts in sets.items()}
    single = sum(len(texts) == 1 for texts in sets.values())
    if single == 0:
        known = {image: replace(one, samples=sets[image][1:]) for image, one in facts.items() if image in sets}
        return _System(name, captions, {**facts, **known})
    if single < len(sets):
        notify(f"{name} has one caption of {single} of {len(sets)} photos, so their agreement is not measured.")
    return _System(name, captions, facts)


def _show_one(
    systems: list[_System],
    images: ScoredImages,
    scoring: Mapping[str, Any],
    per_image: Path | None,
    compare: Path | None,
    bootstrap: int,
    as_json: bool,
) -> None:
    """Print the scores of one system, and what another one's differ by."""
    import json
    from dataclasses import asdict

    from showtell.files import write_json
    from showtell.scores import compare as compare_reports
    from showtell.scores import diagnose, intervals
    from showtell.scores.table import describe, describe_differences

    report, *others = [system.report(scoring) for system in systems]
    for warning in report.warnings:
        notify(warning)
    if per_image is not None:
        write_json(per_image, report.per_image)
    content = report.to_json()
    tables = []
    if not as_json:
        bounds = intervals(report, samples=bootstrap) if bootstrap else None
        tables = [describe(report, bounds, diagnose(systems[0].captions.values(), training=images.training))]
    for other in others:
        differences = compare_reports(report, other, samples=bootstrap)
        content["compare"] = {
            "predictions": str(compare),
            "scores": other.scores,
            "differences": {name: asdict(difference) for name, difference in differences.items()},
        }
        tables.append(describe_differences(differences, str(compare)))
    typer.echo(json.dumps(content, ensure_ascii=False) if as_json else "\n".join(tables))


def _show_systems(
    systems: list[_System],
    scoring: Mapping[str, Any],
    bootstrap: int,
    as_json: bool,
) -> None:
    """Print the scores of several systems and every pair's differences."""
    import json
    from dataclasses import asdict

    from showtell.scores import intervals
    from showtell.scores.comparison import compare_all
    from showtell.scores.table import describe_comparisons, describe_systems

    reports = {system.name: system.report(scoring, f"scoring {system.name}") for system in systems}
    for warning in dict.fromkeys(warning for report in reports.values() for warning in report.warnings):
        concerned = [name for name, report in reports.items() if warning in report.warnings]
        notify(warning if len(concerned) == len(reports) else f"{', '.join(concerned)}: {warning}")
    bounds = {name: intervals(report, samples=bootstrap) for name, report in reports.items()}
    comparisons = compare_all(reports, samples=bootstrap)
    if as_json:
        content = {
            "systems": [
                {
                    "predictions": name,
                    **report.to_json(),
                    "intervals": {number: asdict(interval) for number, interval in bounds[name].items()},
                }
                for name, report in reports.items()
            ],
            "comparisons": [one.to_json() for one in comparisons],
        }
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    typer.echo(describe_systems(reports, bounds))
    typer.echo(describe_comparisons(comparisons, list(reports)))


def _show_judgements(
    path: Path,
    images: ScoredImages | None,
    scoring: Mapping[str, Any],
    bootstrap: int,
    as_json: bool,
    *,
    common: bool,
) -> None:
    """Print how well scores agree with people."""
    import json

    from showtell.progress import counting
    from showtell.scores import score as score_captions
    from showtell.scores.human_correlation import correlate
    from showtell.scores.judgements import caption_ids, judged_facts, read_judgements
    from showtell.scores.table import describe_correlations

    judgements = read_judgements(path, images, common=common)
    for note in judgements.notes:
        notify(note)
    facts = judged_facts(judgements, images)
    captions = dict(zip(caption_ids(judgements), (one.text for one in judgements.captions), strict=True))
    with counting("scoring", None) as progress:
        report = score_captions(captions, facts, **scoring, progress=progress)
    with counting("correlating", None) as progress:
        correlation = correlate(report, judgements, samples=bootstrap, progress=progress)
    if as_json:
        counts = {
            "captions": len(judgements.captions),
            "images": len({one.image for one in judgements.captions}),
            "ratings": sum(len(one.ratings) for one in judgements.captions),
        }
        content = {"judgements": judgements.name, **counts, **correlation.to_json()}
        content |= {"signatures": report.signatures, "skipped": correlation.skipped}
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    typer.echo(describe_correlations(correlation, report, judgements))


def metric_names(option: str | None) -> list[str] | None:
    """The names in a --metrics option, separated by commas; None, all whose needs are met, where it was not given."""
    from showtell.errors import UsageError

    if option is None:
        return None
    names = [name.strip() for name in option.split(",") if name.strip()]
    if not names:
        raise UsageError("--metrics names no metric; leave it out for all that can run, or give some: bleu,cider.")
    return names
