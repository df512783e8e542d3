"""Draw scenes, train a captioner, score it, and write a page about it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from showtell.captioners import EncoderDecoderCaptioner
from showtell.cores import describe_threads
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.errors import notify
from showtell.evaluation import Evaluation, evaluate
from showtell.progress import counting
from showtell.quickstart.baselines import most_frequent, nearest_neighbour
from showtell.reports.quickstart_page import Example, write_report
from showtell.scenes import write_scenes
from showtell.scenes.truth import judge
from showtell.scores import ImageFacts, ScoreReport, image_facts, numbers, score
from showtell.training import load_recipe, train

__all__ = ["next_steps", "run_quickstart"]

METRICS = ("bleu", "cider", "truth")
COLUMNS = (  # of the page's table
    "truth", "truth_statements", "truth_whole", "truth_relations", "truth_compositional", "bleu_4", "cider",
)  # fmt: skip
ON_SCREEN, ON_PAGE = 5, 24  # test pictures that are shown


def run_quickstart(out: Path, *, images: int = 10_000, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Draw, train, score and report, or resume that; returns what `showtell quickstart --json` prints."""
    recipe = load_recipe("scenes/quickstart", [f"data.path={out / 'data'}", *overrides])
    began = time.perf_counter()
    data, run, page = out / "data", out / "run", out / "report.html"
    notify(f"quickstart in {out}: {images:,} scenes, {describe_threads()}.")
    with counting("drawing scenes", images) as progress:
        write_scenes(data, images=images, progress=progress)
    result = train(recipe, run, resume=True)
    if result.interrupted:
        raise KeyboardInterrupt
    captioner = EncoderDecoderCaptioner.from_pretrained(run / "best")
    dataset = open_dataset(data)
    training, test, unseen = (dataset[name] for name in ("train", "test", "test_compositional"))
    facts = image_facts(dataset)
    with counting("captioning", len(test) + len(unseen)) as progress:
        on_test, on_unseen = (
            evaluate(captioner, split, metrics=METRICS, progress=progress) for split in (test, unseen)
        )
    with counting("encoding for the baselines", sum(map(len, (training, test, unseen)))) as progress:
        captions = {
            "most frequent caption": most_frequent(training, [*test, *unseen]),
            "nearest neighbour": nearest_neighbour(captioner, training, [*test, *unseen], progress=progress),
        }
    scores = _numbers(on_test, on_unseen)
    baselines = {
        name: _numbers(*(_score(made, records, facts) for records in (test, unseen))) for name, made in captions.items()
    }
    seconds = time.perf_counter() - began
    titles = {name: number.title for name, number in numbers().items()} | {"truth_compositional": "compositional"}
    write_report(
        page,
        rows={
            name: {titles[column]: values[column] for column in COLUMNS}
            for name, values in {"this model": scores, **baselines}.items()
        },
        examples=[_example(record, on_test, facts) for record in test[:ON_PAGE]],
        signatures=on_test.signatures,
        log=run / "log.jsonl",
        facts={
            "training": f"{len(training)} pictures, {result.epochs} epochs",
            "best on validation": f"epoch {result.best_epoch}",
            "decoding": f"beam of {captioner.decoding.num_beams}",
            "time": f"{seconds:.0f} s",
        },
        next_steps=next_steps(out),
    )
    shown = [{"image": str(image.path), "caption": on_test.captions[image.image_id].text} for image in test[:ON_SCREEN]]
    return {
        "seconds": round(seconds, 1),
        "scores": scores,
        "baselines": baselines,
        "checkpoint": str(run / "best"),
        "report": str(page),
        "examples": shown,
    }


def _numbers(test: ScoreReport, unseen: ScoreReport) -> dict[str, float | None]:
    return {**test.scores, "truth_compositional": unseen.scores["truth"], "cider_compositional": unseen.scores["cider"]}


def _score(
    captions: Mapping[str, str], records: Sequence[CaptionRecord], facts: Mapping[str, ImageFacts]
) -> ScoreReport:
    ids = [record.image_id for record in records]
    return score({image: captions[image] for image in ids}, {image: facts[image] for image in ids}, METRICS)


def _example(record: CaptionRecord, evaluation: Evaluation, facts: Mapping[str, ImageFacts]) -> Example:
    caption, scene = evaluation.captions[record.image_id], facts[record.image_id].scene
    assert scene is not None, "every picture of the dataset was drawn"
    return Example(record, caption, judge(caption.text, scene))


def next_steps(out: Path) -> str:
    """Commands to try next."""
    return f"""\
# caption pictures of your own (it only knows drawn shapes)
showtell caption {out}/run/best {out}/data/images
# see where the model looked for each word, worst captions first
showtell explain {out}/run/best {out}/data --limit 20 --out why.html
# train on photos of your own: a folder with images and a captions.csv (columns image, caption)
showtell data check my-photos
showtell train folder/sat_soft data.path=my-photos"""
