"""`showtell score`: predictions and references to numbers, each with its signature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from showtell.scores import ScoreReport


def score(
    predictions: Annotated[
        Path,
        typer.Argument(help="COCO results JSON, or JSON of {id: text}.", metavar="PREDICTIONS", show_default=False),
    ],
    references: Annotated[
        Path,
        typer.Argument(
            help="COCO captions JSON, JSON of {id: [texts]}, or a dataset (with --split).",
            metavar="REFERENCES",
            show_default=False,
        ),
    ],
    metrics: Annotated[
        str | None, typer.Option(help="Names parted by commas; all that can run if not given.", show_default=False)
    ] = None,
    split: Annotated[str, typer.Option(help="Of a dataset.")] = "test",
    per_image: Annotated[
        Path | None, typer.Option(help="Write {id: {metric: value}} to a JSON file.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score captions against references: coco-caption's numbers, without Java."""
    import json

    from showtell.files import read_json, write_json
    from showtell.scores import score as measure

    texts, scenes = _references(references, split)
    chosen = None if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    report = measure(read_json(predictions), texts, metrics=chosen, scenes=scenes)
    if per_image is not None:
        write_json(per_image, report.per_image)
    typer.echo(json.dumps(report.to_json(), ensure_ascii=False) if as_json else in_words(report))


def _references(path: Path, split: str) -> tuple[Any, dict[str, Any] | None]:
    """References in a form that scoring reads, and the scenes where the images were drawn."""
    from showtell.datasets import read_dataset
    from showtell.errors import DataError, summarise
    from showtell.files import read_json

    if path.suffix == ".json" and path.is_file():
        content = read_json(path)
        if isinstance(content, dict) and not isinstance(content.get("images"), list):
            return content, None
        if isinstance(content, dict) and isinstance(content.get("annotations"), list):
            return content, None
    dataset = read_dataset(path)  # scoring needs no image files, so what is wrong with those does not matter here
    if not dataset.records:
        raise DataError(f"{path} has no captions to score against: {summarise(dataset.problems, 1)}")
    from showtell.scenes import read_scenes

    drawn = read_scenes(path) if path.is_dir() else None
    return {record.image_id: list(record.captions) for record in dataset.split(split)}, drawn


def in_words(report: ScoreReport) -> str:
    """The scores as a table, what was skipped, and how each number was made."""
    width = max(len(name) for name in report.scores)
    lines = [f"{report.images} images", ""]
    lines += [f"{name:{width}}  {'-' if value is None else f'{value:.4f}':>8}" for name, value in report.scores.items()]
    if report.skipped:
        lines += ["", *[f"skipped {name}: {reason}" for name, reason in report.skipped.items()]]
    made = {signature: name for name, signature in reversed(report.signatures.items())}
    lines += ["", "signatures", *[f"{name:{width}}  {signature}" for signature, name in reversed(made.items())]]
    return "\n".join(lines)
