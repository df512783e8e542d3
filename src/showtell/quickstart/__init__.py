"""The main job on embedded data: draw scenes, train a captioner, score it, and write a page about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from showtell.captioners import EncoderDecoderCaptioner
from showtell.cores import describe_threads
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.errors import notify
from showtell.evaluation import Evaluation, evaluate
from showtell.processes import lock_folder
from showtell.progress import counting
from showtell.quickstart.baselines import most_frequent, nearest_neighbour
from showtell.reports.quickstart_page import Example, write_report
from showtell.scenes import write_scenes
from showtell.scenes.truth import judge
from showtell.scores import ImageFacts, ScoreReport, image_facts, numbers, score
from showtell.training import Recipe, load_recipe, train

__all__ = ["next_steps", "run_quickstart"]

METRICS = ("bleu", "cider", "truth")
# The model is only trained once; these are a few test pictures for the screen and for the page.
ON_SCREEN, ON_PAGE = 5, 24


def run_quickstart(
    out: Path, *, images: int = 10_000, overrides: Sequence[str] = (), quiet: bool = False
) -> dict[str, Any]:
    """Draw, train, score and report; resumes a quickstart that was interrupted.

    Args:
        out: a folder; the pictures go to out/data, the run to out/run, the page to out/report.html.
        images: how many pictures to draw.
        overrides: "section.key=value" each, for the recipe.
        quiet: show nothing.

    Returns:
        What `showtell quickstart --json` prints.

    Raises:
        DataError: another quickstart is running in the folder.
    """
    recipe = load_recipe("scenes/quickstart", [f"data.path={out / 'data'}", *overrides])
    with lock_folder(out, "running a quickstart in", "another --out"):
        return _run(recipe, out, images, quiet)


def _run(recipe: Recipe, out: Path, images: int, quiet: bool) -> dict[str, Any]:
    began = time.perf_counter()
    data, run, page = out / "data", out / "run", out / "report.html"
    if not quiet:
        notify(f"quickstart in {out}: {images:,} scenes, {describe_threads()}.")
    with counting("drawing scenes", images, quiet) as progress:
        write_scenes(data, images=images, progress=progress)
    result = train(recipe, run, resume=True, quiet=quiet)
    if result.interrupted:
        raise KeyboardInterrupt
    checkpoint = run / "best"
    captioner = EncoderDecoderCaptioner.from_pretrained(checkpoint)
    dataset = open_dataset(data)
    training, test = dataset.split("train"), dataset.split("test")
    unseen = dataset.split("test_compositional")
    facts = image_facts(dataset)
    with counting("captioning", len(test) + len(unseen), quiet) as progress:
        on_test = evaluate(captioner, test, facts=facts, metrics=METRICS, progress=progress)
        on_unseen = evaluate(captioner, unseen, facts=facts, metrics=METRICS, progress=progress)
    with counting("encoding for the baselines", sum(map(len, (training, test, unseen))), quiet) as progress:
        baselines = _baselines(captioner, training, test, unseen, facts, progress)
    scores = _numbers(on_test.report, on_unseen.report)
    seconds = time.perf_counter() - began
    write_report(
        page,
        rows={name: _columns(values) for name, values in {"this model": scores, **baselines}.items()},
        examples=_examples(test[:ON_PAGE], on_test, facts),
        signatures=on_test.report.signatures,
        log=run / "log.jsonl",
        facts={
            "training": f"{len(training)} pictures, {result.epochs} epochs",
            "best on validation": f"epoch {result.best_epoch}",
            "decoding": f"beam of {captioner.decoding.num_beams}",
            "time": f"{seconds:.0f} s",
        },
        next_steps=next_steps(out),
    )
    return {
        "seconds": round(seconds, 1),
        "scores": scores,
        "baselines": baselines,
        "checkpoint": str(checkpoint),
        "report": str(page),
        "examples": [
            {"image": str(record.path), "caption": on_test.captions[record.image_id].text}
            for record in test[:ON_SCREEN]
        ],
    }


def _numbers(test: ScoreReport, unseen: ScoreReport) -> dict[str, float | None]:
    return {**test.scores, "truth_compositional": unseen.scores["truth"], "cider_compositional": unseen.scores["cider"]}


def _baselines(
    captioner: EncoderDecoderCaptioner,
    training: Sequence[CaptionRecord],
    test: Sequence[CaptionRecord],
    unseen: Sequence[CaptionRecord],
    facts: Mapping[str, ImageFacts],
    progress: Callable[[int], None],
) -> dict[str, dict[str, float | None]]:
    asked = [*test, *unseen]
    captions = {
        "most frequent caption": most_frequent(training, asked),
        "nearest neighbour": nearest_neighbour(captioner, training, asked, progress=progress),
    }

    def scored(made: Mapping[str, str], records: Sequence[CaptionRecord]) -> ScoreReport:
        ids = [record.image_id for record in records]
        return score({image: made[image] for image in ids}, {image: facts[image] for image in ids}, METRICS)

    return {name: _numbers(scored(made, test), scored(made, unseen)) for name, made in captions.items()}


def _columns(scores: dict[str, float | None]) -> dict[str, float | None]:
    """The numbers of the page's table, by the name that they have there."""
    columns = (
        *("truth", "truth_statements", "truth_whole", "truth_relations", "truth_compositional"),
        *("bleu_4", "cider"),
    )
    titles = {name: number.title for name, number in numbers().items()} | {"truth_compositional": "compositional"}
    return {titles[name]: scores[name] for name in columns}


def _examples(
    records: Sequence[CaptionRecord], evaluation: Evaluation, facts: Mapping[str, ImageFacts]
) -> list[Example]:
    examples = []
    for record in records:
        caption, scene = evaluation.captions[record.image_id], facts[record.image_id].scene
        assert scene is not None, "every picture of the dataset was drawn"
        examples.append(Example(record, caption, judge(caption.text, scene)))
    return examples


def next_steps(out: Path) -> str:
    """Commands to try next."""
    return "\n".join(
        [
            "# caption pictures of your own (it only knows drawn shapes)",
            f"showtell caption {out}/run/best {out}/data/images",
            "# see where the model looked for each word, worst captions first",
            f"showtell explain {out}/run/best {out}/data --limit 20 --out why.html",
            "# train on photos of your own: a folder with images and a captions.csv (columns image, caption)",
            "showtell data check my-photos",
            "showtell train folder/sat_soft data.path=my-photos",
        ]
    )
