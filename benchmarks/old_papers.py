"""The decoders and objectives of papers/001 to 004 on scenes, on the features of one encoder: for docs/results.md.

    python benchmarks/old_papers.py --out runs/old-papers [--rows A,B] [--docs docs/results.md] [--json] [KEY=VALUE ...]

 1. Scenes are drawn, and Show, Attend and Tell with soft attention is trained on them together with its encoder: the
    row `sat_soft_joint`, seed 0. That encoder is then frozen.
 2. What it sees in every picture is put into stores: the map of its last stage; the same without position
    embeddings; the map of the stage before; and the last map pooled at the boxes that the dataset has of its objects.
 3. Every model tries the learning rates of `RATES` on the last stage for a few epochs, with a seed of its own; the best
    by CIDEr-D on validation is that of all its rows with a frozen encoder. Where the encoder learns too, the learning
    rate and the epochs are the recipe's.
 4. Every row is trained with each seed, and captions the two test splits by beam. Rows with a frozen encoder have the
    same epochs, captions and batch size. A decoder with stages captions them at every stage.
 5. Rows that start from another row (self-critical training, coarse-to-fine, and as a control more cross-entropy) start
    from its best weights, seed by seed. Their learning rate is the best of `REWARD_RATES`, tried as in 3 with
    `REWARD_TRIAL` from seed 0; it falls to zero.
 6. The captions are scored, and the tables written between the markers of the document.

Each run is a folder with `result.json`. The same command, run again, skips what is done and resumes what was
interrupted. KEY=VALUE changes every recipe, such as training.epochs=3.

A row is held against `sat_soft`, and the `PAIRS` against each other, by a paired bootstrap over images: an image's
statistics are averaged over the seeds first, so an interval says what other images would bring; the spread beside a
score says what other seeds would bring.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from documents import markers_of, table, write_between
from showtell.captioner import Captioner
from showtell.datasets import open_dataset
from showtell.errors import DataError, ShowtellError, UsageError
from showtell.evaluation import caption_records
from showtell.features import build_encoder
from showtell.features.extraction import extract
from showtell.features.store import FeatureStore
from showtell.files import read_json, write_json
from showtell.progress import counting
from showtell.recipes import FOLDER
from showtell.scenes import Scene, read_scenes, write_scenes
from showtell.scenes.truth import judge
from showtell.scores import SCORES, ScoreReport, diagnose, image_facts, score
from showtell.scores.bootstrap import compare
from showtell.training import make_recipe, train
from showtell.training.recipe_loading import apply_overrides

RECIPES = FOLDER / "scenes"
SPLITS = ("test", "test_compositional")
METRICS = ("bleu", "meteor", "rouge_l", "cider", "truth")
RATES = (0.003, 0.009, 0.027)
REWARD_RATES = (0.0003, 0.001, 0.003)  # of rows that start from another
REWARD_TRIAL = "sat_soft_sc"  # the row that tries them for all
TRIAL_SEED = 100  # none of those that are reported
REFERENCE = "sat_soft"  # what every row is held against

# How a row looks at a picture through the frozen encoder: what is changed of the recipe's encoder.
VIEWS: dict[str, dict[str, Any]] = {
    "last": {},
    "last_without_places": {"position_embedding": False},
    "before": {"stage": -2, "position_embedding": False},  # positions were learned for the last stage alone
    "boxes": {},
}


@dataclass(frozen=True)
class Row:
    """One line of the tables."""

    name: str
    says: str
    recipe: str  # in recipes/scenes
    view: str | None = "last"  # of `VIEWS`; None: the encoder starts from nothing and learns too
    start: str | None = None  # the row whose best weights it starts from
    changes: tuple[str, ...] = ()  # KEY=VALUE of the recipe
    tried_by: str | None = None  # the row that tries learning rates for it; None: itself, or that of the rewards
    rate: float | None = None  # a learning rate that is not tried

    @property
    def trial(self) -> str:
        """What its trials of learning rates are called; rows that share them look at another map at most."""
        if self.tried_by:
            return self.tried_by
        if self.start:
            return REWARD_TRIAL
        return self.name if self.changes else self.recipe

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return RATES if self.start is None else REWARD_RATES


INDEPENDENT = ("model.attention=independent",)
TEXT = ("model.discriminator_image=none",)
WORKER = ("model.goals=false", "objective.name=cross_entropy")
IMAGE = ("model.discriminator_image=attended",)
GENTLE = 0.0003  # the rate of policy gradients from a discriminator; at 0.001 they do harm (docs/hacap.md)
# The rows show what adversarial epochs do: none of pre-training between them, and no watchdog that rolls back.
BARE = ("objective.interleave=0", "objective.worker_weight=0.3", "training.reward_watchdog=null")
GOALS_ALONE = ("objective.intrinsic_weight=1", "objective.external_weight=0")
GRU = ("model.cell=gru", "model.image=state")
ROWS = (
    Row("nic_gru", "nic, GRU, image as first state (papers/004)", "nic_ensae"),
    Row("nic_lstm", "nic, LSTM, image as first input", "nic_lstm"),
    Row("nic_lstm3", "nic, LSTM of 3 layers", "nic_lstm3"),
    Row("sat_soft", "sat, soft attention", "sat_soft"),
    Row("sat_hard", "sat, hard attention", "sat_hard"),
    Row("updown", "updown, grid", "updown"),
    Row("updown_boxes", "updown, perfect boxes", "updown", "boxes"),
    Row("sat_soft_boxes", "sat soft, perfect boxes", "sat_soft", "boxes"),
    Row("sat_soft_before", "sat soft, the stage before (12 x 12, no places)", "sat_soft", "before"),
    Row("sat_soft_no_places", "sat soft, last stage without places", "sat_soft", "last_without_places"),
    Row("sat_soft_joint", "sat soft, encoder learns too", "sat_soft", None),
    Row("updown_joint", "updown, encoder learns too", "updown", None),
    Row("stack", "stack, stacked attention", "stack"),
    Row("stack_independent", "stack, independent attention", "stack", changes=INDEPENDENT),
    Row("nic_sc", "nic GRU, then self-critical", "nic_self_critical", start="nic_gru", changes=GRU),
    Row("sat_soft_more", "sat soft, then more cross-entropy", "sat_soft", start="sat_soft"),
    Row("sat_soft_sc", "sat soft, then self-critical", "sat_soft_self_critical", start="sat_soft"),
    Row("updown_sc", "updown grid, then self-critical", "updown_self_critical", start="updown"),
    Row("stack_sc", "stack, then self-critical on the last stage", "stack_self_critical", start="stack"),
    Row("stack_c2f", "stack, then coarse-to-fine", "stack_coarse_to_fine", start="stack"),
    Row(
        "stack_independent_sc", "stack independent, then self-critical on the last stage", "stack_self_critical",
        start="stack_independent", changes=INDEPENDENT,
    ),
    Row(
        "stack_independent_c2f", "stack independent, then coarse-to-fine", "stack_coarse_to_fine",
        start="stack_independent", changes=INDEPENDENT,
    ),
    Row("hacap_worker", "hacap, worker alone", "hacap", changes=WORKER, tried_by="hacap"),
    Row("hacap", "hacap, pre-trained", "hacap", changes=TEXT),
    Row(
        "hacap_unnormalised", "hacap, goals of any length", "hacap",
        changes=(*TEXT, "model.normalise_goals=false"), tried_by="hacap",
    ),
    Row(
        "hacap_no_highway", "hacap without highway", "hacap",
        changes=(*TEXT, "model.highway=false"), tried_by="hacap",
    ),
    Row("hacap_image", "hacap, discriminator sees the image", "hacap", changes=IMAGE, tried_by="hacap"),
    Row(
        "hacap_image_more", "hacap image, then more pre-training", "hacap",
        start="hacap_image", changes=IMAGE, rate=GENTLE,
    ),
    Row(
        "hacap_adversarial", "hacap, then adversarial by papers/000", "hacap_adversarial", start="hacap",
        changes=(*BARE, *TEXT, *GOALS_ALONE), rate=GENTLE,
    ),
    Row(
        "hacap_image_goals", "hacap image, then adversarial, rewarded for goals", "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, *GOALS_ALONE), rate=GENTLE,
    ),
    Row(
        "hacap_image_adversarial", "hacap image, then adversarial, rewarded by the discriminator", "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, "objective.intrinsic_weight=0"), rate=GENTLE,
    ),
    Row(
        "hacap_image_lightly", "hacap image, then adversarial, weighed as in the recipe", "hacap_adversarial",
        start="hacap_image", changes=(*BARE, *IMAGE, "objective.worker_weight=0.1"), rate=GENTLE,
    ),
)  # fmt: skip
# What the papers claim, or what one asks of them: the first of each pair is better than the second.
PAIRS = (
    ("updown_boxes", "updown"),
    ("sat_soft_before", "sat_soft_no_places"),
    ("updown_joint", "sat_soft_joint"),
    ("nic_sc", "nic_gru"),
    ("sat_soft_sc", "sat_soft"),
    ("sat_soft_sc", "sat_soft_more"),
    ("updown_sc", "updown"),
    ("stack_sc", "stack"),
    ("stack_c2f", "stack"),
    ("stack_independent_sc", "stack_independent"),
    ("stack_independent_c2f", "stack_independent"),
    ("stack_c2f", "stack_sc"),
    ("stack_independent_c2f", "stack_independent_sc"),
    ("stack", "sat_soft"),
    ("stack", "updown"),
    ("stack", "nic_lstm3"),
    ("stack", "stack_independent"),
    ("stack_c2f", "stack_independent_c2f"),
    ("stack_sc", "sat_soft_sc"),
    ("stack_sc", "updown_sc"),
    ("hacap", "hacap_worker"),
    ("hacap", "hacap_unnormalised"),
    ("hacap", "hacap_no_highway"),
    ("hacap_image", "hacap"),
    ("hacap_adversarial", "hacap"),
    ("hacap_image_more", "hacap_image"),
    ("hacap_image_adversarial", "hacap_image_more"),
    ("hacap_image_lightly", "hacap_image_more"),
    ("hacap_image_goals", "hacap_image_more"),
    ("hacap_image_adversarial", "hacap_image_goals"),
    ("hacap_worker", "sat_soft"),
)
ENCODER = ("sat_soft_joint", 0)  # the row and the seed whose encoder all frozen rows have


@dataclass(frozen=True)
class Bench:
    """Where everything is, and what holds for all rows."""

    out: Path
    overrides: tuple[str, ...] = ()
    frozen_epochs: int = 12  # of rows with a frozen encoder
    trial_epochs: int = 2  # of runs that try a learning rate
    reward_epochs: int = 2  # of rows that start from another

    def folder(self, row: Row, seed: int) -> Path:
        """Of a run."""
        return self.out / "runs" / row.name / str(seed)

    def trial_folder(self, row: Row, rate: float) -> Path:
        """Of a short run that tries a learning rate."""
        return self.out / "trials" / row.trial / str(rate)

    def recipe(self, row: Row, seed: int, rate: float | None = None) -> dict[str, Any]:
        """The recipe of a run; without a rate, the recipe's own."""
        content = yaml.safe_load((RECIPES / f"{row.recipe}.yaml").read_text(encoding="utf-8"))
        fixed = [f"data.path={self.out / 'scenes'}", f"training.seed={seed}", "training.trackers=[]"]
        if rate is not None:
            fixed.append(f"training.learning_rate={rate}")
        apply_overrides(content, [*row.changes, *self.overrides, *fixed])
        if row.view is not None:
            name, number = ENCODER
            weights = self.out / "runs" / name / str(number) / "best" / "model.safetensors"
            frozen = content["encoder"] | VIEWS[row.view] | {"trained": False, "weights": str(weights)}
            boxes = {"name": "roi_grid", "backbone": frozen, "whole_photo": True}
            content["encoder"] = boxes if row.view == "boxes" else frozen
            content["training"]["epochs"] = self.frozen_epochs if row.start is None else self.reward_epochs
            content["data"]["features"] = str(self.out / "stores" / row.view)
            content["objective"].pop("word_presence", None)  # it teaches the encoder
        if row.start is not None:
            content["training"] |= {"schedule": "linear", "warmup_steps": 0, "validate_every": 1, "bucket": 16}
            content["training"]["optimizer"] = {"name": "adamw", "weight_decay": 0.01}
            begun = 0 if seed == TRIAL_SEED else seed
            content["training"]["start_from"] = str(self.out / "runs" / row.start / str(begun) / "best")
        return content

    def trial(self, row: Row, rate: float) -> dict[str, Any]:
        """The recipe of a short run that tries a learning rate."""
        content = self.recipe(dataclasses.replace(row, view="last"), TRIAL_SEED, rate)
        content["training"] |= {"epochs": self.trial_epochs, "validate_every": self.trial_epochs}
        return content


# --- one run, in a process of its own ---


def run(content: dict[str, Any], folder: Path, *, with_captions: bool) -> bool:
    """Train by a recipe, caption the test splits, and write down what came out, unless that is done.

    Returns:
        Whether it is done; false: it was interrupted, and resumes another time.
    """
    if (folder / "result.json").exists():
        return True
    torch.set_num_threads(1)
    resumed = (folder / "last").exists()
    began, computed = time.perf_counter(), time.process_time()
    trained = train(content, folder, resume=True, quiet=True)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - computed
    if trained.interrupted:
        return False
    captioner = Captioner.from_pretrained(folder / "best", device="cpu")
    if with_captions:
        dataset = open_dataset(content["data"]["path"])
        store = FeatureStore(content["data"]["features"]) if "features" in content["data"] else None
        last = captioner.decoder.stages - 1
        for split in SPLITS:
            for stage in range(last + 1):
                captions = caption_records(
                    captioner, dataset.split(split), captioner.settings(stage=stage), store=store
                )
                texts = {image: caption.text for image, caption in captions.items()}
                write_json(folder / f"{split}{'' if stage == last else f'.stage{stage}'}.json", texts)
    learned = [captioner.decoder, *([captioner.encoder] if captioner.encoder.config.trained else [])]
    result = {
        "validation": trained.best,
        "best_epoch": trained.best_epoch,
        "learning_rate": content["training"]["learning_rate"],
        "weights": sum(weight.numel() for module in learned for weight in module.parameters()),
        # of a run that was interrupted only the end is known
        "seconds": None if resumed else seconds,
        "cpu_seconds": None if resumed else cpu_seconds,
    }
    write_json(folder / "result.json", result, indent=1)
    return True


# --- all runs ---


def run_all(bench: Bench, rows: Sequence[Row], *, images: int, seeds: int, jobs: int) -> None:
    """Whatever is not done yet of the plan at the head of this file."""
    settings = {
        "images": images, "frozen_epochs": bench.frozen_epochs, "trial_epochs": bench.trial_epochs,
        "reward_epochs": bench.reward_epochs, "overrides": list(bench.overrides),
    }  # fmt: skip
    kept = bench.out / "settings.json"
    if kept.exists() and (before := read_json(kept)) != settings:
        raise UsageError(f"{bench.out} was begun with {before}, not with {settings}; take these, or another --out.")
    write_json(kept, settings)
    with counting("drawing scenes", images) as progress:
        write_scenes(bench.out / "scenes", images=images, progress=progress)
    frozen = [row for row in rows if row.view is not None and row.start is None]
    later = [row for row in rows if row.start is not None]
    joint = [row for row in rows if row.view is None]
    by_name = {row.name: row for row in ROWS}
    first = by_name[ENCODER[0]]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:

        def submit(row: Row, seed: int, rate: float | None) -> Future[bool]:
            content, folder = bench.recipe(row, seed, rate), bench.folder(row, seed)
            return pool.submit(run, content, folder, with_captions=True)

        try:
            others = [(row, seed) for seed in range(seeds) for row in joint if (row.name, seed) != ENCODER]
            encoder = {submit(first, ENCODER[1], None): bench.folder(first, ENCODER[1])}
            # the other processes need no encoder for these
            begun = {submit(row, seed, None): bench.folder(row, seed) for row, seed in others[: jobs - 1]}
            _wait(encoder)
            _fill_stores(bench, frozen)
            for group in (frozen, later):
                trials = {}
                tried = {row.trial: by_name.get(row.trial, row) for row in group if row.rate is None}
                for row in tried.values():
                    for rate in row.rates:
                        folder = bench.trial_folder(row, rate)
                        trials[pool.submit(run, bench.trial(row, rate), folder, with_captions=False)] = folder
                _wait(trials)
                rest = {
                    submit(row, seed, best_rate(bench, row)): bench.folder(row, seed)
                    for seed in range(seeds)
                    for row in group
                }
                if group is frozen:
                    rest |= {submit(row, seed, None): bench.folder(row, seed) for row, seed in others[jobs - 1 :]}
                    rest |= begun
                _wait(rest)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _wait(runs: dict[Future[bool], Path]) -> None:
    """Until all are done, saying so of each."""
    for number, future in enumerate(as_completed(runs), 1):
        folder = runs[future]
        if not future.result():
            raise KeyboardInterrupt
        result = read_json(folder / "result.json")
        taken = "" if result["cpu_seconds"] is None else f", {result['cpu_seconds']:.0f} s of CPU time"
        name = "/".join(folder.parts[-3:])
        print(
            f"{time.strftime('%H:%M:%S')} {number} of {len(runs)}: {name}, CIDEr-D {result['validation']:.3f} on "
            f"validation{taken}",
            file=sys.stderr,
            flush=True,
        )


def _fill_stores(bench: Bench, rows: Iterable[Row]) -> None:
    """What the frozen encoder sees, once for each view."""
    records = open_dataset(bench.out / "scenes").records
    views = {row.view: row for row in [*rows, Row("trial", "", "sat_soft")]}  # trials look at the last stage
    for row in views.values():
        recipe = make_recipe(bench.recipe(row, 0))
        assert recipe.data.features is not None
        with counting(f"extracting {row.view}", len(records)) as progress:
            extract(build_encoder(recipe.encoder).eval(), records, recipe.data.features, progress=progress)


def best_rate(bench: Bench, row: Row) -> float:
    """The learning rate with the best CIDEr-D on validation; of equals the smallest; one that is given is not tried."""
    if row.rate is not None:
        return row.rate
    validation = {rate: read_json(bench.trial_folder(row, rate) / "result.json")["validation"] for rate in row.rates}
    return max(row.rates, key=lambda rate: (validation[rate], -rate))


# --- scores ---


def summarise_runs(bench: Bench, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What is done, as JSON: for each row its scores over seeds and how they differ from the reference.

    Raises:
        DataError: no run of the reference is done.
    """
    dataset, scenes = open_dataset(bench.out / "scenes"), read_scenes(bench.out / "scenes")
    assert scenes is not None
    pooled: dict[str, dict[str, ScoreReport]] = {}
    lines = []
    for row in rows:
        folders = sorted(path.parent for path in (bench.out / "runs" / row.name).glob("*/result.json"))
        if not folders:
            continue
        results = [read_json(folder / "result.json") for folder in folders]
        scores: dict[str, Any] = {}
        pooled[row.name] = {}
        kinds: dict[str, Any] = {}
        faults: dict[str, Any] = {}
        stages: dict[str, Any] = {}
        for split in SPLITS:
            facts = image_facts(dataset, dataset.split(split))
            captions = [read_json(folder / f"{split}.json") for folder in folders]
            kinds[split] = truth_by_kind(captions, scenes)
            diagnoses = [diagnose(texts.values()) for texts in captions]
            faults[split] = {name: mean_and_spread([one[name] for one in diagnoses]) for name in FAULTS}
            reports = [score(texts, facts, METRICS) for texts in captions]
            pooled[row.name][split] = pool_reports(reports)
            scores[split] = spreads(reports)
            for number in range(len(list(folders[0].glob(f"{split}.stage*.json")))):
                texts = [read_json(folder / f"{split}.stage{number}.json") for folder in folders]
                stages.setdefault(split, []).append(spreads([score(one, facts, METRICS) for one in texts]))
        lines.append(
            {
                "name": row.name,
                "says": row.says,
                "seeds": [int(folder.name) for folder in folders],
                "learning_rate": results[0]["learning_rate"],
                "weights": results[0]["weights"],
                "cpu_seconds": mean_and_spread([result["cpu_seconds"] for result in results]),
                "scores": scores,
                "kinds": kinds,
                "faults": faults,
                "stages": stages,  # those before the last
            }
        )
    if REFERENCE not in pooled:
        raise DataError(f"{bench.out} has no finished run of {REFERENCE}, which all rows are held against.")
    for line in lines:
        name = line["name"]
        line["against"] = {} if name == REFERENCE else _compare(pooled[name], pooled[REFERENCE])
        line["pairs"] = {
            second: _compare(pooled[name], pooled[second])
            for first, second in PAIRS
            if first == name and second in pooled
        }
    return lines


def _compare(first: Mapping[str, ScoreReport], second: Mapping[str, ScoreReport]) -> dict[str, Any]:
    """How much better the first is, on each split by each score, with its interval."""
    return {
        split: {
            name: dataclasses.asdict(difference) for name, difference in compare(first[split], second[split]).items()
        }
        for split in SPLITS
    }


def spreads(reports: Sequence[ScoreReport]) -> dict[str, Any]:
    """Each score over several runs."""
    return {name: mean_and_spread([report.scores[name] for report in reports]) for name in reports[0].scores}


def pool_reports(reports: Sequence[ScoreReport]) -> ScoreReport:
    """One report of several runs on the same images: each image's statistics are the mean over the runs.

    A score that is a mean over images is then the mean of the runs' scores; BLEU is that of all captions together.
    """
    first = reports[0]
    statistics = {
        name: dataclasses.replace(kept, rows=np.mean([report.statistics[name].rows for report in reports], axis=0))
        for name, kept in first.statistics.items()
    }
    return dataclasses.replace(first, statistics=statistics)


def truth_by_kind(runs: Sequence[Mapping[str, str]], scenes: Mapping[str, Scene]) -> dict[str, dict[str, float]]:
    """For each kind of statement how many a caption makes, and the share of them that hold.

    Args:
        runs: for each an image id to its caption.
        scenes: image id to what was drawn.
    """
    totals: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for captions in runs:
        for image, text in captions.items():
            for statement in judge(text, scenes[image]).statements:
                totals[statement.kind] += 1
                held[statement.kind] += statement.holds
    made = sum(map(len, runs))
    return {kind: {"said": count / made, "held": held[kind] / count} for kind, count in totals.items()}


def mean_and_spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """The mean of what is known, and the sample deviation where there are two values or more."""
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.mean(known) if known else None,
        "spread": statistics.stdev(known) if len(known) > 1 else None,
    }


# --- the document ---

COLUMNS = {
    number.name: number.title for metric in METRICS for number in SCORES[metric].numbers if number.name != "cider_plain"
}
COMPARED = {name: COLUMNS[name] for name in ("cider", "truth")}
FAULTS = {
    "mean_length": "words", "bad_endings": "bad endings", "repeats": "repeats", "identical": "said twice",
    "vocabulary": "different words",
}  # fmt: skip
KINDS = ("shape", "colour", "size", "pattern", "count", "relation", "background")


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """The tables of a summary, in Markdown."""
    parts = []
    for split in SPLITS:
        rows = [[line["says"], *[_number(line["scores"][split].get(name)) for name in COLUMNS]] for line in lines]
        parts.append(f"On `{split}`:\n\n" + table(["model", *COLUMNS.values()], rows))
    rows = [
        [line["says"], *[_difference(line["against"][split][name]) for split in SPLITS for name in COMPARED]]
        for line in lines
        if line["against"]
    ]
    heads = [f"{shown}, `{split}`" for split in SPLITS for shown in COMPARED.values()]
    parts.append("Less sat soft, with the 95 % interval and p:\n\n" + table(["model", *heads], rows))
    says = {line["name"]: line["says"] for line in lines}
    rows = [
        [
            f"{line['says']} - {says[second]}",
            *[_difference(differences[split][name]) for split in SPLITS for name in COMPARED],
        ]
        for line in lines
        for second, differences in line["pairs"].items()
        if second in says
    ]
    if rows:
        parts.append("Other pairs, in the same way:\n\n" + table(["difference", *heads], rows))
    rows = [
        [f"{line['says']}: stage {number} of 0 to {len(stages)}", *[_number(scores.get(name)) for name in COLUMNS]]
        for line in lines
        if line["stages"]
        for stages in [line["stages"]["test"]]
        for number, scores in enumerate([*stages, line["scores"]["test"]])
    ]
    if rows:
        parts.append("The caption of each stage, on `test`:\n\n" + table(["model", *COLUMNS.values()], rows))
    rows = [[line["says"], *[_number(line["faults"]["test"][name]) for name in FAULTS]] for line in lines]
    parts.append("How captions read, on `test`:\n\n" + table(["model", *FAULTS.values()], rows))
    for split in SPLITS:
        rows = [[line["says"], *[_share(line["kinds"][split].get(kind)) for kind in KINDS]] for line in lines]
        head = f"Of the statements on `{split}` the share that holds, and in brackets how many a caption makes:\n\n"
        parts.append(head + table(["model", *KINDS], rows))
    rows = [
        [
            line["says"],
            str(len(line["seeds"])),
            f"{line['learning_rate']:g}",
            f"{line['weights'] / 1000:.0f}",
            _number(line["cpu_seconds"], 0),
        ]
        for line in lines
    ]
    heads = ["model", "seeds", "learning rate", "thousand weights that learn", "CPU seconds of a run"]
    parts.append("What a run took:\n\n" + table(heads, rows))
    return "\n\n".join(parts)


def _number(value: dict[str, float | None] | None, digits: int = 3) -> str:
    if value is None or value["mean"] is None:
        return "–"
    spread = "" if value["spread"] is None else f" ± {value['spread']:.{digits}f}"
    return f"{value['mean']:.{digits}f}{spread}"


def _share(share: dict[str, float] | None) -> str:
    return "–" if share is None else f"{share['held']:.3f} ({share['said']:.2f})"


def _difference(difference: dict[str, float]) -> str:
    return f"{difference['value']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}], p {difference['p']:.3f}"


def ratios(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What `--json` prints: each row's CIDEr-D and truth on the test splits, against the reference."""
    reference = next(line for line in lines if line["name"] == REFERENCE)
    return [
        {
            "name": f"{line['name']}_{metric}_{split}",
            "value": (value := line["scores"][split][metric]["mean"]),
            "unit": shown,
            "against": REFERENCE,
            "ratio": value / base if (base := reference["scores"][split][metric]["mean"]) else None,
        }
        for line in lines
        for split in SPLITS
        for metric, shown in COMPARED.items()
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for every recipe, such as training.epochs=3")
    parser.add_argument("--out", type=Path, default=Path("runs/old-papers"), help="where everything goes")
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=3, help="how many, from 0")
    parser.add_argument("--frozen-epochs", type=int, default=12, help="of rows with a frozen encoder")
    parser.add_argument("--reward-epochs", type=int, default=2, help="of rows that start from another")
    parser.add_argument("--trial-epochs", type=int, default=2, help="of runs that try a learning rate")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on one core")
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS), help="which, with commas")
    parser.add_argument("--docs", type=Path, help="a document with markers, such as docs/results.md")
    parser.add_argument("--table", default="measured", help="which of its markers: <!-- TABLE: begin -->, end")
    parser.add_argument("--summary-only", action="store_true", help="train nothing; score what is done")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    known = {row.name: row for row in ROWS}
    wanted = given.rows.split(",")
    try:
        if unknown := [name for name in wanted if name not in known]:
            raise UsageError(f"--rows: there is no {', '.join(unknown)}; known are {', '.join(known)}.")
        rows = [known[name] for name in wanted]
        for row in rows:
            if row.start is not None and row.start not in wanted:
                raise UsageError(f"--rows: {row.name} starts from {row.start}; name that too.")
        epochs = {"frozen": given.frozen_epochs, "trial": given.trial_epochs, "reward": given.reward_epochs}
        bench = Bench(
            given.out, tuple(given.overrides), **{f"{kind}_epochs": number for kind, number in epochs.items()}
        )
        if not given.summary_only:
            run_all(bench, rows, images=given.images, seeds=given.seeds, jobs=given.jobs)
        lines = summarise_runs(bench, rows)
        write_json(bench.out / "results.json", lines, indent=1)
        if given.docs:
            write_between(given.docs, tables(lines), markers_of(given.table))
    except ShowtellError as error:
        raise SystemExit(f"old_papers.py: {error}") from error
    print(json.dumps(ratios(lines)) if given.json else tables(lines))


if __name__ == "__main__":
    main()
