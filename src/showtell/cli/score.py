"""`showtell score`: predictions and references to numbers, each with its signature."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from showtell.cli.arguments import AsJson, Split, out_file

if TYPE_CHECKING:
    from showtell.scores import Difference, DocumentFrequency, Interval, ScoreReport


def score(
    predictions: Annotated[
        Path,
        typer.Argument(help="COCO results JSON, or JSON of {id: text}.", metavar="PREDICTIONS", show_default=False),
    ],
    references: Annotated[
        Path,
        typer.Argument(
            help="COCO captions JSON, JSON of {id: \\[texts]}, or a dataset (with --split).",
            metavar="REFERENCES",
            show_default=False,
        ),
    ],
    metrics: Annotated[
        str | None, typer.Option(help="Names parted by commas; all that can run if not given.", show_default=False)
    ] = None,
    split: Split = "test",
    per_image: Annotated[Path | None, out_file("Write the scores of each image to a JSON file.")] = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="Predictions of another system: differences, and whether they may be chance."),
    ] = None,
    bootstrap: Annotated[
        int, typer.Option(help="Draws for intervals and comparisons; 0 for no intervals.", min=0, max=1_000_000)
    ] = 1000,
    document_frequency: Annotated[
        Path | None,
        typer.Option(help="CIDEr's weights: references, or JSON of document frequencies.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score captions against references: coco-caption's numbers, without Java."""
    import json

    from showtell.errors import UsageError
    from showtell.files import read_json, refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import compare as difference_of
    from showtell.scores import diagnose, intervals, read_predictions
    from showtell.scores import score as measure

    if compare is not None and bootstrap == 0:
        raise UsageError("--compare draws images to tell a difference from chance; give --bootstrap at least 1 draw.")
    if per_image is not None:
        inputs = (predictions, references, compare, document_frequency)
        refuse_overwriting(per_image, "--per-image", [path for path in inputs if path is not None])
    known = _references(references, split)
    frequency = None if document_frequency is None else _document_frequency(document_frequency, split)
    chosen = metric_names(metrics)
    given = [read_predictions(read_json(path)) for path in (predictions, compare) if path is not None]
    with counting("scoring", None) as progress:
        reports = [
            measure(
                texts,
                known.texts,
                metrics=chosen,
                scenes=known.scenes,
                objects=known.objects,
                document_frequency=frequency,
                progress=progress,
            )
            for texts in given
        ]
    report = reports[0]
    for warning in report.warnings:
        typer.echo(f"showtell: {warning}", err=True)
    if per_image is not None:
        write_json(per_image, report.per_image)
    differences = difference_of(report, reports[1], samples=bootstrap) if len(reports) == 2 else None
    if as_json:
        other = {} if differences is None else {"compare": _comparison(compare, reports[1], differences)}
        typer.echo(json.dumps({**report.to_json(), **other}, ensure_ascii=False))
        return
    bounds = intervals(report, samples=bootstrap) if bootstrap else None
    rates = diagnose(given[0].values(), training=known.training)
    typer.echo(in_words(report, bounds, rates))
    if differences is not None:
        typer.echo(differences_in_words(differences, compare))


def metric_names(option: str | None) -> list[str] | None:
    """The names in a --metrics option, parted by commas; None, all that can run, where it was not given."""
    from showtell.errors import UsageError

    if option is None:
        return None
    names = [name.strip() for name in option.split(",") if name.strip()]
    if not names:
        raise UsageError("--metrics names no metric; leave it out for all that can run, or give some: bleu,cider.")
    return names


class _Known(NamedTuple):
    """What references say of the images."""

    texts: Any  # in a form that scoring reads
    scenes: dict[str, Any] | None = None
    objects: dict[str, set[str]] | None = None
    training: list[str] | None = None


def _references(path: Path, split: str) -> _Known:
    """References, and with a dataset what it knows beside them."""
    from showtell.datasets import read_dataset
    from showtell.errors import DataError, summarise
    from showtell.files import read_json
    from showtell.scenes import read_scenes

    if path.suffix == ".json" and path.is_file():
        content = read_json(path)
        if isinstance(content, dict) and not isinstance(content.get("images"), list):
            return _Known(content)
        if isinstance(content, dict) and isinstance(content.get("annotations"), list):
            return _Known(content)
    dataset = read_dataset(path)  # scoring needs no image files, so what is wrong with those does not matter here
    if not dataset.records:
        raise DataError(f"{path} has no captions to score against: {summarise(dataset.problems, 1)}")
    records = dataset.split(split)
    boxes = {record.image_id: record.boxes for record in records}
    scenes = read_scenes(path) if path.is_dir() else None
    # the shapes of scenes are judged by truth, which knows their synonyms
    annotated = scenes is None and all(found is not None for found in boxes.values())
    objects = {image: {box.category for box in found or ()} for image, found in boxes.items()} if annotated else None
    training = [text for record in dataset.records if record.split == "train" for text in record.captions]
    texts = {record.image_id: list(record.captions) for record in records}
    return _Known(texts, scenes, objects, training or None)


def _document_frequency(path: Path, split: str) -> DocumentFrequency:
    """From a file of document frequencies, or counted in references."""
    from showtell.errors import DataError
    from showtell.files import read_json
    from showtell.scores import DocumentFrequency, read_references
    from showtell.text.tokenizer import tokenize

    if path.suffix == ".gz" and path.is_file():
        return DocumentFrequency.load(path)
    if path.suffix == ".json" and path.is_file():
        content = read_json(path)
        if isinstance(content, dict) and "document_frequency" in content:
            return DocumentFrequency.load(path)
    texts = read_references(_references(path, split).texts)
    if not texts:
        raise DataError(f"{path} has no captions to count document frequencies in.")
    return DocumentFrequency.of(([tokenize(text) for text in captions] for captions in texts.values()), path.name)


def _comparison(path: Path | None, other: ScoreReport, differences: Mapping[str, Difference]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "predictions": str(path),
        "scores": other.scores,
        "differences": {name: asdict(difference) for name, difference in differences.items()},
    }


def in_words(
    report: ScoreReport,
    bounds: Mapping[str, Interval] | None = None,
    rates: Mapping[str, float] | None = None,
) -> str:
    """The scores as a table, with intervals and rates if given, what was skipped, and how each number was made."""
    width = max(len(name) for name in (*report.scores, *(rates or ())))
    lines = [f"{report.images} images", ""]
    for name, value in report.scores.items():
        line = f"{name:{width}}  {'-' if value is None else f'{value:.4f}':>8}"
        if bounds and name in bounds:
            line += f"  [{bounds[name].low:.4f}, {bounds[name].high:.4f}]"
        lines.append(line)
    if rates:
        lines += ["", *[f"{name:{width}}  {_rate(value):>8}" for name, value in rates.items()]]
    if report.skipped:
        reasons: dict[str, list[str]] = {}
        for name, reason in report.skipped.items():
            reasons.setdefault(reason, []).append(name)
        lines += ["", *[f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]]
    made = {signature: name for name, signature in reversed(report.signatures.items())}
    lines += ["", "signatures", *[f"{name:{width}}  {signature}" for signature, name in reversed(made.items())]]
    return "\n".join(lines)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and value > 1 else f"{value:.4f}"


def differences_in_words(differences: Mapping[str, Difference], path: Path | None) -> str:
    """The differences between two systems as a table."""
    width = max(map(len, differences), default=0)
    lines = ["", f"minus {path}"]
    for name, found in differences.items():
        lines.append(f"{name:{width}}  {found.value:+8.4f}  [{found.low:+.4f}, {found.high:+.4f}]  p = {found.p:.4f}")
    return "\n".join(lines)
