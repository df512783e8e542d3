"""`showtell evaluate`: the papers' protocol in one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import (
    CHECKPOINT_HELP,
    AsJson,
    BatchSize,
    Dataset,
    Dtype,
    Ensemble,
    FeatureStore,
    Limit,
    Split,
    out_file,
)
from showtell.cli.decoding_options import DecodingOfOne, looks_at_photos, open_captioner, settings_of
from showtell.cli.explain import short_names
from showtell.cli.score import DocumentFrequencyFile, Metrics, ObjectsFile, SynonymsFile, with_object_files
from showtell.cli.score_model_options import ScoreModelChoice, open_score_models
from showtell.errors import notify

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.decoding import DecodingConfig
    from showtell.evaluation import Evaluation
    from showtell.features.store import FeatureStore as FeatureStoreReader
    from showtell.scores import ScoreReport

PERFECT = 0.999  # BLEU-4 that captions reach against themselves alone
FEW = 30  # images, below which scores depend mostly on which images were chosen


def evaluate(
    checkpoints: Annotated[
        list[str],
        typer.Argument(help=f"{CHECKPOINT_HELP} Several are compared.", metavar="CHECKPOINT...", show_default=False),
    ],
    dataset: Dataset,
    split: Split = "test",
    ensemble: Ensemble = None,
    limit: Limit = None,
    metrics: Metrics = None,
    document_frequency: DocumentFrequencyFile = None,
    objects: ObjectsFile = None,
    synonyms: SynonymsFile = None,
    out: Annotated[Path | None, out_file("Write the captions as COCO results.")] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="Caption COCO's val2014 and test2014 for its evaluation server, resumably, and write results.zip "
            "into this folder; NAME is yours and becomes part of the file names. With val2014_NAME or test2014_NAME: "
            "that set alone.",
            metavar="NAME",
            show_default="not written",
        ),
    ] = None,
    features: FeatureStore = None,
    batch_size: BatchSize = 64,
    dtype: Dtype = None,
    as_json: AsJson = False,
    *,
    decoding: DecodingOfOne,
    score_models: ScoreModelChoice,
) -> None:
    """Caption a split, one caption for each image, write COCO results and score them.

    Several checkpoints are scored on the same images, and each is compared with the first.
    """
    from showtell.checkpoint import find_checkpoint
    from showtell.cli.score import metric_names
    from showtell.datasets import open_dataset
    from showtell.errors import UsageError
    from showtell.evaluation import evaluate as run
    from showtell.features.store import FeatureStore
    from showtell.files import refuse_overwriting, write_json
    from showtell.progress import counting
    from showtell.scores import image_facts
    from showtell.scores.files import read_document_frequency, training_captions

    one_only = {"--ensemble": ensemble, "--out": out, "--server": server}
    if len(checkpoints) > 1 and any(one_only.values()):
        given = " and ".join(name for name, value in one_only.items() if value)
        raise UsageError(f"{given} is for one captioner and {len(checkpoints)} are named; evaluate that one alone.")
    lists = {} if server is None else _server_lists(dataset, server, limit, out)
    if out is not None:
        refuse_overwriting(out, "--out", [*map(Path, checkpoints), dataset])
    opened = None if lists else open_dataset(dataset, with_photos=features is None)
    records = () if opened is None else opened.limited(limit).split(split)
    chosen = metric_names(metrics)
    frequency = None if document_frequency is None else read_document_frequency(document_frequency)
    models = open_score_models(score_models)
    store = None if features is None else FeatureStore(features)
    for name in checkpoints[1:]:
        find_checkpoint(name)  # a misspelt one is named before the first captions
    titles = dict(zip(short_names(checkpoints), checkpoints, strict=True))
    known = {} if opened is None else with_object_files(image_facts(opened, records), objects, synonyms)
    evaluations: dict[str, Evaluation] = {}
    facts: dict[str, dict[str, Any]] = {}
    for title, name in titles.items():
        captioner = open_captioner(name, ensemble, dtype)
        settings = settings_of(captioner, {**decoding, "num_return_sequences": 1})
        facts[title] = _facts(captioner, settings, split, decoding)
        if opened is None:
            assert server is not None
            scoring = {"metrics": chosen, "document_frequency": frequency, "models": models}
            _submit(captioner, lists, server, settings, store, scoring, facts[title], as_json=as_json)
            return
        own = None if evaluations and looks_at_photos(captioner, title, store) else store
        with counting("captioning" if len(titles) == 1 else f"captioning with {title}", len(records)) as progress:
            evaluations[title] = run(
                captioner,
                records,
                settings,
                facts=known,
                metrics=chosen,
                document_frequency=frequency,
                models=models,
                store=own,
                batch_size=batch_size,
                progress=progress,
            )
    assert opened is not None
    training = training_captions(opened)
    if len(evaluations) > 1:
        _show_several(evaluations, facts, training, as_json=as_json)
        return
    ((title, evaluation),) = evaluations.items()
    files = [out] if out is not None else []
    files += [Path(f"captions_{server}_results.json")] if server is not None else []
    for file in files:
        write_json(file, evaluation.results())
    _show(evaluation.report, _texts(evaluation), training, facts[title], as_json=as_json)


def _facts(captioner: Captioner, settings: DecodingConfig, split: str, decoding: dict[str, Any]) -> dict[str, Any]:
    """How captions were made, as it stands above their scores."""
    prompt = {} if settings.prompt is None else {"prompt": settings.prompt}
    return {"split": split, "search": settings.kind, "num_beams": settings.num_beams, **prompt, **decoding}


def _describe_facts(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())


def _texts(evaluation: Evaluation) -> list[str]:
    return [caption.text for caption in evaluation.captions.values()]


def _server_lists(dataset: Path, server: str, limit: int | None, out: Path | None) -> dict[str, Path]:
    """The files that list the images to caption for COCO's server; none where a split of another dataset is meant.

    Raises:
        UsageError: options that do not go together with whole sets.
    """
    from showtell.cli.evaluate_server import chosen_lists
    from showtell.errors import UsageError

    lists = chosen_lists(dataset, server)
    if lists and limit is not None:
        raise UsageError("--limit leaves images out, and COCO's server takes none but whole sets; give one of the two.")
    if lists and out is not None:
        raise UsageError("--server names its files itself, as COCO's server wants them; leave --out out.")
    return lists


def _submit(
    captioner: Captioner,
    lists: Mapping[str, Path],
    server: str,
    settings: DecodingConfig,
    store: FeatureStoreReader | None,
    scoring: Mapping[str, Any],
    facts: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Caption sets for COCO's server, then score the one that has references, with these arguments of `score`."""
    from showtell.cli.caption_journal import made_with_of
    from showtell.cli.evaluate_server import ARCHIVE, caption_for_server, read_images, results_file
    from showtell.scores import image_facts, score

    datasets = {one: read_images(one, file, with_photos=store is None) for one, file in lists.items()}
    made_with = made_with_of(captioner, settings)
    made_with |= {} if store is None else {"features": True}
    sets = {one: dataset.records for one, dataset in datasets.items()}
    captions = caption_for_server(captioner, sets, server, made_with, settings, store)
    files = ", ".join(str(results_file(one, server)) for one in sets)
    notify(f"{ARCHIVE} is ready for the server: {files}." if len(sets) > 1 else f"{files} is complete.")
    for one, texts in captions.items():
        known = image_facts(datasets[one])
        if all(image.references for image in known.values()):
            report = score(texts, known, **scoring)
            _show(report, list(texts.values()), None, {**facts, "split": one}, as_json=as_json)


def _show(
    report: ScoreReport,
    texts: Sequence[str],
    training: Sequence[str] | None,
    facts: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Print the scores of captions, with intervals and rates, and warn of what they do not say."""
    import json

    from showtell.scores import diagnose, intervals
    from showtell.scores.table import describe

    _warn(report)
    rates = diagnose(texts, training=training)
    if as_json:
        typer.echo(json.dumps({**report.to_json(), **facts, "rates": rates}, ensure_ascii=False))
        return
    typer.echo(_describe_facts(facts))
    typer.echo(describe(report, intervals(report), rates))


def _show_several(
    evaluations: Mapping[str, Evaluation],
    facts: Mapping[str, dict[str, Any]],
    training: Sequence[str] | None,
    *,
    as_json: bool,
) -> None:
    """Print the scores of several captioners side by side, and what each differs from the first by."""
    import json
    from dataclasses import asdict

    from showtell.scores import compare, diagnose, intervals
    from showtell.scores.table import describe_differences, describe_several

    reports = {title: one.report for title, one in evaluations.items()}
    first, *others = reports
    _warn(reports[first])
    rates = {title: diagnose(_texts(one), training=training) for title, one in evaluations.items()}
    differences = {title: compare(reports[title], reports[first]) for title in others}
    if as_json:
        content = {
            "captioners": [
                {"captioner": title, **report.to_json(), **facts[title], "rates": rates[title]}
                for title, report in reports.items()
            ],
            "differences": [
                {"captioner": title, "from": first, **{name: asdict(one) for name, one in of.items()}}
                for title, of in differences.items()
            ],
        }
        typer.echo(json.dumps(content, ensure_ascii=False))
        return
    for title, own in facts.items():
        typer.echo(f"{title}: {_describe_facts(own)}")
    typer.echo(describe_several(reports, {title: intervals(report) for title, report in reports.items()}, rates))
    for title, of in differences.items():
        typer.echo(describe_differences(of, first, title))


def _warn(report: ScoreReport) -> None:
    """Say what scores do not say."""
    for warning in report.warnings:
        notify(warning)
    if (report.scores.get("bleu_4") or 0.0) > PERFECT:
        notify(
            "every caption equals a reference: if the references are captions of this captioner, the scores say "
            "nothing; take references that people wrote."
        )
    if report.images < FEW:
        notify(
            f"{report.images} images are too few to judge a captioner by: on as many others the scores would be "
            "others; mind the intervals."
        )
