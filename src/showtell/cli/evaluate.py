"""`showtell evaluate`: the papers' protocol in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli import arguments as common
from showtell.cli import score
from showtell.cli.decoding_options import DecodingOfOne, looks_at_photos, open_captioner, short_names
from showtell.errors import UsageError, notify

if TYPE_CHECKING:
    from showtell.decoding import DecodingConfig
    from showtell.evaluation import Evaluation


def evaluate(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            help=f"{common.CHECKPOINT_HELP} Several are compared.", metavar="CHECKPOINT...", show_default=False
        ),
    ],
    dataset: common.Dataset,
    split: common.Split = "test",
    limit: common.Limit = None,
    max_captions: Annotated[
        int | None,
        typer.Option(min=1, help="Score against at most this many references of an image.", show_default="all"),
    ] = None,
    metrics: score.Metrics = None,
    document_frequency: score.DocumentFrequencyFile = None,
    clip_model: score.ClipModel = None,
    out: Annotated[Path | None, common.out_file("Write the captions as COCO results.")] = None,
    features: common.FeatureStore = None,
    batch_size: common.BatchSize = 64,
    dtype: common.Dtype = None,
    as_json: common.AsJson = False,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Caption a split of a dataset and score the captions.

    Several checkpoints are scored on the same images, and each pair is compared.
    """
    from showtell.datasets import open_dataset
    from showtell.evaluation import FEW
    from showtell.evaluation import evaluate as run
    from showtell.features.store import FeatureStore
    from showtell.files import listed_paths, refuse_overwriting, write_json
    from showtell.hub import find_checkpoint
    from showtell.progress import counting
    from showtell.scores import metric_names
    from showtell.scores.bootstrap import SAMPLES
    from showtell.scores.files import training_captions
    from showtell.scores.report import as_text

    if len(checkpoints) > 1 and out:
        raise UsageError("--out is for one captioner, and several are named; evaluate that one alone.")
    if out is not None:
        read = map(Path, [*checkpoints, *listed_paths(str(dataset))])
        refuse_overwriting(out, "--out", [*read, *filter(None, (document_frequency, features))])
    opened = open_dataset(dataset, with_photos=features is None)
    records = opened.limited(limit, max_captions)[split]
    scoring: dict[str, Any] = {"metrics": metric_names(metrics), **score.how_to_score(document_frequency, clip_model)}
    store = None if features is None else FeatureStore(features)
    for name in checkpoints[1:]:
        find_checkpoint(name)  # a misspelt one is named before the first captions
    titles = dict(zip(short_names(checkpoints), checkpoints, strict=True))
    evaluations: dict[str, Evaluation] = {}
    about: dict[str, dict[str, Any]] = {}
    searches: dict[str, DecodingConfig] = {}
    for title, name in titles.items():
        captioner = open_captioner(name, dtype)
        settings = captioner.settings(**decoding, num_return_sequences=1)
        searches[title] = settings
        prompt = {} if settings.prompt is None else {"prompt": settings.prompt}
        about[title] = {"split": split, "search": settings.kind, "num_beams": settings.num_beams, **prompt, **decoding}
        own = None if evaluations and looks_at_photos(captioner, title, store) else store
        with counting("captioning" if len(titles) == 1 else f"captioning with {title}", len(records)) as progress:
            evaluations[title] = run(
                captioner, records, **scoring, store=own, batch_size=batch_size, progress=progress, **decoding
            )
    if out is not None:
        write_json(out, next(iter(evaluations.values())).results())
    for title, settings in searches.items():
        first_title, first_search = next(iter(searches.items()))
        if changed := _differences(first_search, settings):
            notify(
                f"{title} was searched otherwise than {first_title} ({changed}), so their scores do not compare the "
                "captioners alone; give all one search by options, such as --num-beams."
            )
    first = next(iter(evaluations.values()))
    if first.images < FEW:
        notify(
            f"{first.images} images are too few to judge a captioner by: on as many others the scores would be "
            "others; mind the intervals."
        )
    every_number = metrics is not None
    if not as_json:
        for title, facts in about.items():
            told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
            typer.echo(f"{title}: {told}")
        for part in first.parts:
            of_part = {title: evaluation.parts[part] for title, evaluation in evaluations.items()}
            typer.echo(f"{part}: {as_text(of_part, {}, SAMPLES, every_number=every_number)}\n")
    captions: dict[str, dict[str, str]] = {}
    for title, evaluation in evaluations.items():
        captions[title] = {image: caption.text for image, caption in evaluation.captions.items()}
        if evaluation.parts:
            about[title]["parts"] = {part: report.scores for part, report in evaluation.parts.items()}
    score.show_scores(
        evaluations, captions, training_captions(opened), samples=SAMPLES, as_json=as_json, every_number=every_number,
        about=about,
    )  # fmt: skip


def _differences(first: DecodingConfig, other: DecodingConfig) -> str:
    """The settings in which two searches differ, as text; the prompt is a matter of the captioner."""
    pairs = [(name, getattr(other, name), value) for name, value in first if name not in ("prompt", "seed")]
    return ", ".join(f"{name} {here} and {there}" for name, here, there in pairs if here != there)
