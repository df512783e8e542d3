"""`showtell report`: a run folder to one page: curves, scores, captions with attention, warnings, configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from showtell.cli.arguments import Limit, out_file

if TYPE_CHECKING:
    from showtell.explanations import Explanation


def report(
    run: Annotated[Path, typer.Argument(help="Run folder, finished or not.", metavar="RUN", show_default=False)],
    out: Annotated[Path, out_file("Write the page to this file.", "FILE.html", default=False)],
    data: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Dataset to caption and score.", show_default="that of the run"),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Split to caption and score.", show_default="the run's validation split")
    ] = None,
    limit: Limit = None,
    photos: Annotated[int, typer.Option(help="Number of photos to show with their captions.", min=0)] = 12,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="STORE",
            help="Read features from a store instead of photos.",
            show_default="that of the run, unless --data is given",
        ),
    ] = None,
    score: Annotated[bool, typer.Option("--score/--no-score", help="Caption the split and score it.")] = True,
) -> None:
    """Write a page about a run: curves, scores, captions, warnings."""
    from showtell.captioners import Captioner
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner
    from showtell.datasets import open_dataset
    from showtell.errors import DataError
    from showtell.explanations.photo_set import choose_photos
    from showtell.explanations.verdict import verdict_on_checkpoint
    from showtell.features.extraction import fill_store
    from showtell.features.store import FeatureStore
    from showtell.files import listed_paths, refuse_overwriting
    from showtell.grounding.judging import explain_and_judge
    from showtell.progress import counting
    from showtell.recipes import published_for
    from showtell.reports.base import refuse_foreign
    from showtell.reports.run import Paper, read_run, score_run
    from showtell.reports.run_page import write_run_page
    from showtell.training.recipe_loading import load_recipe
    from showtell.training.run_folder import LOG, RECIPE

    record = read_run(run)
    refuse_overwriting(out, "--out", [run / name for name in (RECIPE, LOG, "best", "last")])
    refuse_foreign(out, "--out")
    recipe = record.recipe
    chosen = split or recipe["data"]["validation_split"] or "test"
    path = data or recipe["data"]["path"]
    own = recipe["data"].get("features") if data is None else None
    where = features or (Path(own) if own and Path(own).exists() else None)
    store = None if where is None else FeatureStore(where)
    card, note, verdict = None, None, list[str]()
    explanations: list[Explanation] = []
    if record.checkpoint is None or not (score or photos):
        pass
    elif store is None and recipe["encoder"]["name"] == "precomputed":
        note = (
            "There are no scores and no captions: the run reads features of other tools, and their store "
            f"{recipe['data']['features']} is not there; name it with --features STORE."
        )
    elif data is None and not all(Path(part).exists() for part in listed_paths(path)):
        raise DataError(
            f"The run was trained on {path}, which is not there; give its dataset with --data, or skip what needs it: "
            "--no-score --photos 0."
        )
    else:
        captioner = Captioner.from_pretrained(record.checkpoint)
        whole = open_dataset(path, with_photos=store is None)
        dataset = whole.limited(limit)
        if store is not None and features is None and isinstance(captioner, EncoderDecoderCaptioner):
            store_path, store = (
                store.path,
                None,
            )  # training extracted its own splits alone; a writer opens the file anew
            needed = whole.limited(limit and max(limit, photos))[chosen]
            with counting("extracting features", len(needed)) as progress:
                fill_store(store_path, captioner.encoder, needed, progress=progress)
            store = FeatureStore(store_path)
        verdict = [f"{sentence}." for sentence in verdict_on_checkpoint(captioner, dataset[chosen], store)]
        if score:
            row = published_for(recipe["training"].get("recipe") or "")
            paper = None if row is None else Paper(row, load_recipe(row.recipe).model_dump(mode="json"), recipe)
            with counting("captioning", len(dataset[chosen])) as progress:
                card = score_run(captioner, dataset, chosen, store=store, progress=progress, paper=paper)
        if photos:
            photo_set = choose_photos([path], chosen, photos, store=store)
            with counting("explaining", len(photo_set.photos)) as progress:  # unreadable photos are skipped
                explanations, _ = explain_and_judge({record.title: captioner}, photo_set, progress=progress)
    write_run_page(out, record, card, explanations, note, verdict)
    typer.echo(out)
