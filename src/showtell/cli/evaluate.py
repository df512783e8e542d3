"""`showtell evaluate`: the papers' protocol in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    checkpoint: Annotated[
        str, typer.Argument(help="A checkpoint folder, or owner/name on the Hugging Face hub.", show_default=False)
    ],
    dataset: Annotated[Path, typer.Argument(help="A dataset with references.", metavar="DATASET", show_default=False)],
    split: Annotated[str, typer.Option(help="Which images.")] = "test",
    num_beams: Annotated[
        int | None, typer.Option(help="Width of the beam; the checkpoint's own if not given.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="At most so many images, the same each time.", min=1, show_default=False)
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Names parted by commas; all that can run if not given.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the captions as COCO results.", show_default=False)] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="Also write captions_NAME_results.json, as the COCO server wants it; NAME is like val2014_mymodel.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        Path | None,
        typer.Option(metavar="STORE", help="Read features from a store instead of photos.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Caption a split, write COCO results and score them."""
    import json

    from showtell.captioner import Captioner
    from showtell.cli.score import in_words, metric_names
    from showtell.datasets import open_dataset
    from showtell.evaluation import evaluate as run
    from showtell.features.store import FeatureStore
    from showtell.files import write_json
    from showtell.progress import counting
    from showtell.scenes import read_scenes
    from showtell.scores import diagnose, intervals

    found_dataset = open_dataset(dataset)
    records = found_dataset.limited(limit).split(split)
    captioner = Captioner.from_pretrained(checkpoint)
    settings = captioner.settings() if num_beams is None else captioner.settings(num_beams=num_beams, search=None)
    chosen = metric_names(metrics)
    scenes = read_scenes(dataset) if dataset.is_dir() else None
    with counting("captioning", len(records)) as progress:
        found = run(
            captioner, records, settings, metrics=chosen, scenes=scenes, progress=progress,
            store=None if features is None else FeatureStore(features),
        )  # fmt: skip
    files = [out] if out is not None else []
    files += [Path(f"captions_{server}_results.json")] if server is not None else []
    for file in files:
        write_json(file, found.results())
    texts = [caption.text for caption in found.captions.values()]
    known = [text for record in found_dataset.records if record.split == "train" for text in record.captions]
    rates = diagnose(texts, training=known or None)
    facts = {"split": split, "search": settings.kind, "num_beams": settings.num_beams}
    if as_json:
        typer.echo(json.dumps({**found.report.to_json(), **facts, "rates": rates}, ensure_ascii=False))
        return
    typer.echo(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
    typer.echo(in_words(found.report, intervals(found.report), rates))
