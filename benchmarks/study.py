"""Rows of a table, each a recipe with the features of one frozen encoder: trained, captioned and scored.

`old_papers.py`, `classic_models.py` and `ablations.py` name rows on scenes, `real_photos.py` those on photos; this file
runs them and writes what came out. On scenes:

 1. Scenes are drawn, and Show, Attend and Tell with soft attention is trained on them together with its encoder: the
    row `sat_soft_joint`, seed 0. That encoder is then frozen.
 2. What it sees in every picture is put into stores: the map of its last stage; the same without position
    embeddings; and the map of the stage before.
 3. Every model tries the learning rates of `RATES` on the last stage for a few epochs, with a seed of its own, and
    further ones by the factor 3 as long as the best is at the edge, six at most. The best by CIDEr-D on validation is
    that of all rows of this model with a frozen encoder. Where the encoder learns too, the learning rate and the epochs
    are the recipe's.
 4. Every row is trained with each seed, and captions the two test splits by beam. Rows with a frozen encoder have the
    same epochs, captions and batch size. A decoder with stages captions them at every stage.
 5. Rows that start from another row (self-critical training, coarse-to-fine, and as a control more cross-entropy) start
    from its best weights, seed by seed. Their learning rate is the best of `reward_rates`, tried as in 3 from seed 0;
    it falls to zero.
 6. The captions are scored. `benchmarks/results/NAME-scores.csv` has a line for each row and split, with the spread
    over seeds, `NAME-differences.csv` one for each pair of rows; the pages of results are made from them.

Each run is a folder OUT/runs/ROW/SEED, and what came out is in `result.json` there (of photos: in `Bench.results`). The
same command, run again, skips what is done and resumes what was interrupted; tables with the same --out share their
runs. A run is done if its result has the row's learning rate and the same `origin`: the rate of the row that it starts
from, and what else the bench names. Where a start's result is kept and its weights are not, it is trained again in OUT
alone, and `start.json` beside the result of the row that starts from it has the captions of the start that it had.
Where there is a GPU, everything runs on it. KEY=VALUE changes every recipe, such as training.epochs=3.

Rows are held against each other by a paired bootstrap over images, an image's statistics averaged over the seeds first:
`low` and `high` say what other images would bring. `low, seeds too` and `high, seeds too` are wider by what other seeds
would bring, Student's t times sigma sqrt(1 / n + 1 / m) for n and m seeds, where sigma is the spread between seeds,
pooled over all rows that have several. A row that starts from another is held against that row's runs of its own
seeds; then its own n seeds count alone.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import _threads  # noqa: F401  (first)
from pointing import captions_to_follow, encode_records, measure_attention
from showtell.captioners import Captioner
from showtell.cores import keep_freed_memory
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.decoding import teacher_forced
from showtell.errors import DataError, ShowtellError, UsageError
from showtell.evaluation import caption_records
from showtell.features import build_encoder
from showtell.features.extraction import extract
from showtell.features.store import FeatureStore
from showtell.files import read_json, write_json
from showtell.models import Capability
from showtell.models.contract import eval_mode
from showtell.progress import counting
from showtell.recipes import FOLDER
from showtell.scenes import write_scenes
from showtell.scores import SCORES, ScoreReport, compare, diagnose, image_facts, score
from showtell.text.vocabulary import Vocabulary
from showtell.training import make_recipe, train
from showtell.training.recipe_loading import apply_overrides

import numpy as np
import torch
import yaml

RATES = (0.003, 0.009, 0.027)
REWARD_RATES = (0.0003, 0.001, 0.003)  # of rows that start from another
MAX_RATES = 6  # of one model
UNDIVIDED = ".undivided"  # in the name of a file of captions
RESULTS = Path(__file__).parent / "results"
DIFFERENCE = {
    "value": "difference", "low": "low", "high": "high",
    "low_seeds": "low, seeds too", "high_seeds": "high, seeds too",
}  # fmt: skip
COMPARED = ("cider", "truth", "meteor")  # of which differences are written

# How a row looks at a picture through the frozen encoder: what is changed of the recipe's encoder.
VIEWS: dict[str, dict[str, Any]] = {
    "last": {},
    "last_without_places": {"position_embedding": False},
    "before": {"stage": -2, "position_embedding": False},  # positions were learned for the last stage alone
}
# lambda_r and what a reward of hard attention is for, with its switches
REINFORCE = {
    f"{weight}_{unit}": (f"objective.reinforce={weight}", f"objective.per_word={str(unit == 'word').lower()}")
    for weight in (0, 0.1, 1, 10)
    for unit in ("word", "caption")
}
Reports = dict[str, dict[int, ScoreReport]]  # of a row: of each split, of each seed


@dataclass(frozen=True)
class Row:
    """One line of the tables."""

    name: str
    says: str
    recipe: str  # in the bench's recipes
    view: str | None = "last"  # of `VIEWS`; None: the encoder starts from nothing and learns too
    start: str | None = None  # the row whose best weights it starts from
    changes: tuple[str, ...] = ()  # KEY=VALUE of the recipe
    tried_by: str | None = None  # the row that tries learning rates for it; None: itself
    rate: float | None = None  # a learning rate that is not tried

    @property
    def trial(self) -> str:
        """What its trials of learning rates are called; rows of one recipe share them."""
        if self.tried_by:
            return self.tried_by
        return self.name if self.changes or self.start else self.recipe

    @property
    def is_tried(self) -> bool:
        """Whether learning rates are tried for it; where the encoder learns too, the recipe has its own."""
        return self.rate is None and self.view is not None

    def run_path(self, seed: int) -> Path:
        """Of a run, below the folders of runs and of results."""
        return Path("runs", self.name, str(seed))

    def trial_path(self, rate: float) -> Path:
        """Of a run that tries a learning rate."""
        return Path("trials", self.trial, str(rate))


# The row and the seed whose encoder all frozen rows have.
ENCODER_ROW, ENCODER_SEED = Row("sat_soft_joint", "sat soft, encoder learns too", "sat_soft", None), 0


@dataclass(frozen=True)
class Bench:
    """Where everything is, and what holds for all rows."""

    out: Path
    overrides: tuple[str, ...] = ()
    rows: Mapping[str, Row] = field(default_factory=dict)  # by name, those too that others start from
    images: int = 0  # at most of each split; 0 for all

    name: ClassVar[str]  # of the folder of the runs, where none is given
    recipes: ClassVar[Path]
    splits: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]]
    reads: ClassVar[Mapping[str, str]]  # what is said of captions beside their scores, with titles
    factor: ClassVar[float]  # between rates
    trial_seed: ClassVar[int]
    encoder_row: ClassVar[Row | None] = None  # whose encoder all others have
    has_boxes: ClassVar[bool] = False  # so that pointing can be measured
    undivided: ClassVar[frozenset[str]] = frozenset()  # rows captioned by a beam not divided by the length, too

    @property
    def data(self) -> Path:
        """The dataset."""
        raise NotImplementedError

    @property
    def results(self) -> Path:
        """Where the folders of results are, runs/ROW/SEED and trials/ROW/RATE."""
        return self.out

    def first_rates(self, row: Row) -> tuple[float, ...]:
        """The learning rates that a row tries first."""
        raise NotImplementedError

    def draw(self) -> None:
        """Make the dataset, where it is not there."""

    def describe(self, captions: Mapping[str, str], split: str) -> dict[str, float]:
        """How the captions of a run read: each of `reads`."""
        return diagnose(captions.values())

    def recipe(self, row: Row, seed: int, rate: float | None = None) -> dict[str, Any]:
        """The recipe of a run; without a rate, the recipe's own."""
        content: dict[str, Any] = yaml.safe_load((self.recipes / f"{row.recipe}.yaml").read_text(encoding="utf-8"))
        fixed = [f"data.path={self.data}", f"training.seed={seed}", "training.trackers=[]"]
        if row.start is not None:
            fixed.append(f"training.start_from={self.out / self.start_path(row, seed) / 'best'}")
        if row.view is not None:
            content["objective"].pop("word_presence", None)  # it teaches the encoder
        apply_overrides(content, [*row.changes, *self.overrides, *fixed])
        if rate is not None:
            content["training"]["learning_rate"] = rate
        return content

    def start_path(self, row: Row, seed: int) -> Path:
        """Of the run that a run starts from."""
        assert row.start is not None, "it starts from another row"
        return Path("runs", row.start, str(0 if seed == self.trial_seed else seed))

    def trial(self, row: Row, rate: float) -> dict[str, Any]:
        """The recipe of a run that tries a learning rate."""
        return self.recipe(dataclasses.replace(row, view="last"), self.trial_seed, rate)

    def origin(self, row: Row) -> dict[str, Any]:
        """What the row's runs depend on beside their recipe, which names weights by their path alone."""
        if row.start is None:
            return {}
        start = self.rows[row.start]
        rate = best_rate(self, start)
        return {"start_rate": self.recipe(start, 0, rate)["training"]["learning_rate"]}


@dataclass(frozen=True)
class Scenes(Bench):
    """Drawn scenes."""

    images: int = 5000  # that are drawn
    frozen_epochs: int = 6  # of rows with a frozen encoder
    trial_epochs: int = 2  # of runs that try a learning rate
    reward_epochs: int = 2  # of rows that start from another
    reward_trial_epochs: int = 1  # of runs that try a learning rate for these

    name: ClassVar[str] = "old-papers"
    recipes: ClassVar[Path] = FOLDER / "scenes"
    splits: ClassVar[tuple[str, ...]] = ("test", "test_compositional")
    metrics: ClassVar[tuple[str, ...]] = ("bleu", "meteor", "rouge_l", "cider", "truth")
    reads: ClassVar[Mapping[str, str]] = {
        "mean_length": "words", "bad_endings": "bad endings", "repeats": "repeats", "identical": "said twice",
        "vocabulary": "different words",
    }  # fmt: skip
    factor: ClassVar[float] = 3
    trial_seed: ClassVar[int] = 100  # none of those that are reported
    encoder_row: ClassVar[Row | None] = ENCODER_ROW
    has_boxes: ClassVar[bool] = True

    @property
    def data(self) -> Path:
        return self.out / "scenes"

    def first_rates(self, row: Row) -> tuple[float, ...]:
        return REWARD_RATES if row.start else RATES

    def draw(self) -> None:
        with counting("drawing scenes", self.images) as progress:
            write_scenes(self.data, images=self.images, progress=progress)

    def recipe(self, row: Row, seed: int, rate: float | None = None) -> dict[str, Any]:
        content = super().recipe(row, seed, rate)
        if row.view is not None:
            weights = self.out / ENCODER_ROW.run_path(ENCODER_SEED) / "best" / "model.safetensors"
            content["encoder"] |= VIEWS[row.view] | {"trained": False, "weights": str(weights)}
            content["training"]["epochs"] = self.frozen_epochs if row.start is None else self.reward_epochs
            content["data"]["features"] = str(self.out / "stores" / row.view)
        if row.start is not None:
            content["training"] |= {"schedule": "linear", "warmup_steps": 0, "validate_every": 1, "bucket": 16}
            content["training"]["optimizer"] = {"name": "adamw", "weight_decay": 0.01}
        return content

    def trial(self, row: Row, rate: float) -> dict[str, Any]:
        content = super().trial(row, rate)
        epochs = self.trial_epochs if row.start is None else self.reward_trial_epochs
        content["training"] |= {"epochs": epochs, "validate_every": epochs}
        return content


# --- one run, in a process of its own ---


def run(
    content: dict[str, Any],
    folder: Path,
    results: Path,
    splits: Sequence[str],
    given: Mapping[str, Any],
    *,
    boxes: bool = False,
    undivided: bool = False,
    tried: Path | None = None,
    start: Path | None = None,
) -> bool:
    """Train by a recipe, caption the splits, write what came out into `results`; false if that was interrupted.

    `given` is written with it; `tried` is the result of the same run as a trial, which knows the time; `start` has the
    captions of its start, where that was trained again."""
    torch.set_num_threads(1)
    keep_freed_memory()
    write_json(mark_of(folder), given)
    resumed = (folder / "last").exists()
    began, computed = time.perf_counter(), time.process_time()
    trained = train(content, folder, resume=True, quiet=True)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - computed
    if trained.interrupted:
        return False
    taken = {"seconds": seconds, "cpu_seconds": cpu_seconds}
    if resumed:  # of a run that was interrupted only the end is known
        taken = {name: read_json(tried)[name] if tried else None for name in taken}
    captioner = Captioner.from_pretrained(folder / "best")
    (results / "result.json").unlink(missing_ok=True)  # of another origin; it says that the captions are whole
    if splits:
        dataset = open_dataset(content["data"]["path"])
        store = FeatureStore(content["data"]["features"]) if "features" in content["data"] else None
        last = captioner.decoder.stages - 1
        searches = {f".stage{stage}": captioner.settings(stage=stage) for stage in range(last)}
        searches[""] = captioner.settings()
        if undivided:
            searches[UNDIVIDED] = captioner.settings(length_penalty=0.0)
        for split in splits:
            for suffix, settings in searches.items():
                captions = caption_records(captioner, dataset[split], settings, store=store)
                texts = {image: caption.text for image, caption in captions.items()}
                write_json(results / f"{split}{suffix}.json", texts)
    learned = [captioner.decoder, *([captioner.encoder] if captioner.encoder.config.trained else [])]
    result = {
        "validation": trained.best,
        "best_epoch": trained.best_epoch,
        **given,
        "weights": sum(weight.numel() for module in learned for weight in module.parameters()),
        "attention": attention_numbers(captioner, dataset["test"]) if splits and boxes else None,
        **taken,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    (results / "start.json").unlink(missing_ok=True)
    if start is not None and start.exists():
        shutil.copyfile(start, results / "start.json")
    write_json(results / "result.json", result, indent=1)
    return True


def mark_of(folder: Path) -> Path:
    """The file that says what a run in a folder was given."""
    return folder.with_name(f"{folder.name}.json")


@torch.no_grad()
def attention_numbers(captioner: Captioner, records: Sequence[CaptionRecord]) -> dict[str, float | None] | None:
    """Pointing accuracy along the references, its chance, and the mean entropy of attention in nats; None without."""
    if Capability.ATTENTION not in captioner.decoder.config.capabilities:
        return None
    pointing = measure_attention(captioner, records, occlusion=None).report.scores
    entropy = words = 0.0
    with eval_mode(captioner.decoder):
        for batch, encoded in encode_records(captioner, records):
            decoder, _, ids = captions_to_follow(captioner, batch, encoded.features, "references", captioner.decoding)
            alpha = teacher_forced(decoder, encoded.features, ids[..., :-1]).outputs.attention
            assert alpha is not None, "the model provides attention"
            is_word = ids[..., 1:] != Vocabulary.pad
            entropy += float((torch.special.entr(alpha).sum(-1) * is_word).sum())
            words += float(is_word.sum())
    return {"pointing": pointing["pointing"], "chance": pointing["chance_pointing"], "entropy": entropy / words}


# --- all runs ---


def run_all(bench: Bench, rows: Sequence[Row], *, seeds: int, jobs: int) -> None:
    """Whatever is not done yet of the plan at the head of this file."""
    settings = {name: getattr(bench, name) for name in ("overrides", *settings_of(type(bench)))}
    settings = {name: value for name, value in settings.items() if not isinstance(value, Path)}
    settings["overrides"] = list(bench.overrides)
    kept = bench.results / "settings.json"
    if kept.exists() and (before := read_json(kept)) != settings:
        raise UsageError(f"{bench.results} was begun with {before}, not with {settings}; take these, or other results.")
    write_json(kept, settings)
    bench.draw()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:

        def submit(row: Row, content: dict[str, Any], path: Path, *, needed: bool = False, **more: Any) -> None:
            """Start a run, unless it is done; `needed` are its weights."""
            given = given_to(bench, row, content)
            done = is_done(bench, path, given)
            if done and not (needed and not (bench.out / path / "best").exists()):
                return
            mark = mark_of(bench.out / path)
            if mark.exists() and (before := read_json(mark)) != given:
                raise UsageError(f"{bench.out / path} was trained with {before}, not with {given}; move it away.")
            results = bench.out / path if done else bench.results / path
            runs[pool.submit(run, content, bench.out / path, results, given=given, **more)] = results

        def submit_row(row: Row, seed: int) -> None:
            rate, path = best_rate(bench, row), row.run_path(seed)
            more: dict[str, Any] = {"boxes": bench.has_boxes, "undivided": row.name in bench.undivided}
            if row.start and bench.results != bench.out:
                more["start"] = bench.out / bench.start_path(row, seed) / f"{bench.splits[0]}.json"
            content = bench.recipe(row, seed, rate)
            if rate and not row.tried_by and content == bench.trial(row, rate):  # the same run tried its rate
                before, own = row.trial_path(rate), bench.out / path
                if (bench.out / before).exists() and not own.exists():
                    shutil.copytree(bench.out / before, own)
                    more["tried"] = bench.results / before / "result.json"
            needed = row == bench.encoder_row or any(
                not has_run(bench, other, seed) for other in with_trials(bench, rows) if other.start == row.name
            )
            submit(row, content, path, needed=needed, splits=bench.splits, **more)

        runs: dict[Future[bool], Path] = {}
        try:
            if bench.encoder_row is not None:
                submit_row(bench.encoder_row, ENCODER_SEED)
            _wait(runs)
            _fill_stores(bench, rows)
            for group in ([row for row in rows if not row.start], [row for row in rows if row.start]):
                tried = {trial_row(bench, row).trial: trial_row(bench, row) for row in group if row.is_tried}
                while missing := [(row, rate) for row in tried.values() for rate in missing_rates(bench, row)]:
                    for row, rate in missing:
                        submit(row, bench.trial(row, rate), row.trial_path(rate), splits=())
                    _wait(runs)
                for seed in range(seeds):
                    for row in group:
                        submit_row(row, seed)
                _wait(runs)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def settings_of(bench_type: type[Bench]) -> dict[str, Any]:
    """What the command can set of a bench, and what it is otherwise."""
    return {one.name: one.default for one in dataclasses.fields(bench_type)[3:]}


def given_to(bench: Bench, row: Row, content: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a run of a row another one: its learning rate, and where it comes from."""
    return {"learning_rate": content["training"]["learning_rate"], "origin": bench.origin(row)}


def is_done(bench: Bench, path: Path, given: Mapping[str, Any]) -> bool:
    """Whether a run's result is there."""
    kept = bench.results / path / "result.json"
    if not kept.exists():
        return False
    result = {"origin": {}, **read_json(kept)}
    return all(result[name] == value for name, value in given.items())


def has_run(bench: Bench, row: Row, seed: int) -> bool:
    """Whether a row's rates are tried and its run is done."""
    if row.is_tried and missing_rates(bench, trial_row(bench, row)):
        return False
    content = bench.recipe(row, seed, best_rate(bench, row))
    return is_done(bench, row.run_path(seed), given_to(bench, row, content))


def trial_row(bench: Bench, row: Row) -> Row:
    """The row that tries learning rates for a row: another, or itself."""
    return bench.rows[row.tried_by] if row.tried_by else row


def with_trials(bench: Bench, rows: Iterable[Row]) -> list[Row]:
    """The rows, and those that still have rates to try for them."""
    rows = list(rows)
    others = [trial_row(bench, row) for row in rows if row.is_tried]
    return [*rows, *(row for row in others if row not in rows and missing_rates(bench, row))]


def _wait(runs: dict[Future[bool], Path]) -> None:
    """Until all are done, saying so of each; then none is left."""
    for number, future in enumerate(as_completed(runs), 1):
        folder = runs[future]
        if not future.result():
            raise KeyboardInterrupt
        result = read_json(folder / "result.json")
        taken = "" if result["cpu_seconds"] is None else f", {result['cpu_seconds']:.0f} s of CPU time"
        name = "/".join(folder.parts[-3:])
        score = f"CIDEr-D {result['validation']:.3f} on validation{taken}"
        print(f"{time.strftime('%H:%M:%S')} {number} of {len(runs)}: {name}, {score}", file=sys.stderr, flush=True)
    runs.clear()


def _fill_stores(bench: Bench, rows: Iterable[Row]) -> None:
    """What the frozen encoder sees, once for each view."""
    keep_freed_memory()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    records = open_dataset(bench.data).records
    views = {row.view: row for row in [*rows, Row("trial", "", "sat_soft")]}  # trials look at the last stage
    for row in (row for view, row in views.items() if view is not None):
        recipe = make_recipe(bench.recipe(row, 0))
        assert recipe.data.features is not None
        with counting(f"extracting {row.view}", len(records)) as progress:
            extract(build_encoder(recipe.encoder).eval().to(device), records, recipe.data.features, progress=progress)


def missing_rates(bench: Bench, row: Row) -> list[float]:
    """The learning rates still to try: those that every row tries, then beyond the edge while the best is there."""
    tried = tried_rates(bench, row)
    if first := [rate for rate in bench.first_rates(row) if rate not in tried]:
        return first
    best = best_rate(bench, row)
    if best is None or len(tried) >= MAX_RATES:
        return []
    beyond = {max(tried): best * bench.factor, min(tried): best / bench.factor}
    return [float(f"{beyond[best]:.3g}")] if best in beyond else []


def tried_rates(bench: Bench, row: Row) -> dict[float, float]:
    """The learning rates tried so far, each with its CIDEr-D on validation; those from the start that the row has."""
    origin = bench.origin(trial_row(bench, row))
    files = (bench.results / "trials" / row.trial).glob("*/result.json")
    results = {float(file.parent.name): {"origin": {}, **read_json(file)} for file in files}
    return {rate: result["validation"] for rate, result in results.items() if result["origin"] == origin}


def best_rate(bench: Bench, row: Row) -> float | None:
    """The learning rate with the best CIDEr-D on validation; of equals the smallest; where none is tried, the row's."""
    tried = tried_rates(bench, row) if row.is_tried else {}
    return max(tried, key=lambda rate: (tried[rate], -rate)) if tried else row.rate


# --- scores ---


def summarise_runs(
    bench: Bench, rows: Sequence[Row], pairs: Iterable[tuple[str, str]], metrics: Sequence[str], seeds: int
) -> list[dict[str, Any]]:
    """As JSON the scores of each row over its first seeds, and how the first of a pair differs from the second."""
    dataset = open_dataset(bench.data)
    facts = {split: image_facts(dataset[split]) for split in bench.splits}
    kept: dict[str, Reports] = {}  # of each row
    starts: dict[str, Reports] = {}  # of each row whose start was trained again, that start
    lines = []
    for row in rows:
        files = (bench.results / "runs" / row.name).glob("*/result.json")
        folders = {seed: file.parent for seed, file in sorted((int(file.parent.name), file) for file in files)}
        folders = {seed: folder for seed, folder in folders.items() if seed < seeds}
        if not folders:
            continue
        results = [read_json(folder / "result.json") for folder in folders.values()]
        if len(rates := sorted({result["learning_rate"] for result in results})) > 1:
            raise DataError(f"{bench.results / 'runs' / row.name} mixes runs at the rates {rates}; train all at one.")
        scores: dict[str, Any] = {}
        kept[row.name] = {}
        described: dict[str, dict[str, Any]] = {}
        stages: dict[str, Any] = {}
        undivided: dict[str, Any] = {}
        for split in bench.splits:
            captions = {seed: read_json(folder / f"{split}.json") for seed, folder in folders.items()}
            described[split] = _reads(bench, list(captions.values()), split)
            kept[row.name][split] = {seed: score(texts, facts[split], metrics) for seed, texts in captions.items()}
            scores[split] = spreads(list(kept[row.name][split].values()))
            again = {seed: folder / "start.json" for seed, folder in folders.items()}
            if row.start and any(file.exists() for file in again.values()):
                own = bench.results / "runs" / row.start
                files = {seed: file if file.exists() else own / f"{seed}/{split}.json" for seed, file in again.items()}
                starts.setdefault(row.name, {})[split] = {
                    seed: score(read_json(file), facts[split], metrics) for seed, file in files.items()
                }
            searched = [folder / f"{split}{UNDIVIDED}.json" for folder in folders.values()]
            if texts := [read_json(file) for file in searched if file.exists()]:
                numbers = spreads([score(one, facts[split], metrics) for one in texts])
                undivided[split] = {"seeds": str(len(texts)), **cells({**numbers, **_reads(bench, texts, split)})}
            for number in range(len(list(folders[min(folders)].glob(f"{split}.stage*.json")))):
                texts = [read_json(folder / f"{split}.stage{number}.json") for folder in folders.values()]
                stages.setdefault(split, []).append(spreads([score(one, facts[split], metrics) for one in texts]))
        lines.append(
            {
                "name": row.name,
                "says": row.says,
                "seeds": list(folders),
                "learning_rate": rates[0],
                "tried": tried_rates(bench, row) if row.is_tried else {},
                "tried_by": bench.rows[row.tried_by].says if row.tried_by else "",
                "devices": sorted({result.get("device", "CPU") for result in results}),
                "device_minutes": minutes_by_device(results),
                "attention": {
                    name: mean_and_spread([result["attention"][name] for result in results])
                    for name in (results[0]["attention"] or {})
                },
                "scores": scores,
                "reads": described,
                "stages": stages,  # those before the last
                "undivided": undivided,
            }
        )
    for line, row in zip(lines, [row for row in rows if row.name in kept], strict=True):
        line["pairs"] = {}
        for first, second in pairs:
            if first == row.name and second in kept:
                again = starts.get(first) if second == row.start else None
                other = again or kept[second]
                differences = _compare(kept[first], other, list(kept.values()), is_start=second == row.start)
                line["pairs"][second] = {"again": bool(again), "differences": differences}
    return lines


def _reads(bench: Bench, runs: Iterable[Mapping[str, str]], split: str) -> dict[str, Any]:
    described = [bench.describe(texts, split) for texts in runs]
    return {title: mean_and_spread([one[name] for one in described]) for name, title in bench.reads.items()}


def _compare(first: Reports, second: Reports, every: Sequence[Reports], is_start: bool) -> dict[str, Any]:
    """How much better the first is, on each split by each score, with its intervals; of a start the same seeds.

    `every` row says how far seeds spread."""
    differences: dict[str, Any] = {}
    for split, reports in first.items():
        others = [report for seed, report in second[split].items() if not is_start or seed in reports]
        both = {"first": pool_reports(list(reports.values())), "second": pool_reports(others)}
        differences[split] = {}
        for one in compare(both):
            runs = [[report.scores[one.number] for report in row[split].values()] for row in every]
            noise = seed_noise(runs) * math.sqrt(1 / len(reports) + (0 if is_start else 1 / len(others)))
            differences[split][one.number] = dataclasses.asdict(one) | {
                "low_seeds": one.value - math.hypot(one.value - one.low, noise),
                "high_seeds": one.value + math.hypot(one.high - one.value, noise),
            }
    return differences


def seed_noise(rows: Iterable[Sequence[float | None]]) -> float:
    """How far 95 % of single runs lie from their row's mean: t times the deviation pooled over rows of several runs."""
    several = [known for row in rows if len(known := [value for value in row if value is not None]) > 1]
    freedom = sum(len(values) - 1 for values in several)
    if not freedom:
        return math.nan
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in several)
    return _student(freedom) * math.sqrt(squares / freedom)


@cache
def _student(freedom: int) -> float:
    """Between minus this and this lie 95 % of Student's t."""
    return float(np.quantile(np.random.default_rng(0).standard_t(freedom, 1_000_000), 0.975))


def spreads(reports: Sequence[ScoreReport]) -> dict[str, Any]:
    """Each score over several runs."""
    return {name: mean_and_spread([report.scores[name] for report in reports]) for name in reports[0].scores}


def pool_reports(reports: Sequence[ScoreReport]) -> ScoreReport:
    """One report of several runs on the same images: each image's statistics are the mean over the runs."""
    first = reports[0]
    statistics = {
        name: dataclasses.replace(kept, rows=np.mean([report.statistics[name].rows for report in reports], axis=0))
        for name, kept in first.statistics.items()
    }
    scores = {
        name: float(value)
        for kept in statistics.values()
        for name, value in zip(kept.score.names, kept.from_sums(kept.rows.sum(axis=0)), strict=True)
    }
    return dataclasses.replace(first, statistics=statistics, scores=scores)


def minutes_by_device(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean minutes of processor time of the runs on each device, where they are known."""
    seconds: dict[str, list[float]] = {}
    for result in results:
        if result["cpu_seconds"] is not None:
            seconds.setdefault(result.get("device", "CPU"), []).append(result["cpu_seconds"])
    return {device: statistics.mean(values) / 60 for device, values in seconds.items()}


def mean_and_spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """The mean of what is known, and the sample deviation where there are two values or more."""
    known = [value for value in values if value is not None]
    mean, spread = statistics.mean(known) if known else None, statistics.stdev(known) if len(known) > 1 else None
    return {"mean": mean, "spread": spread}


# --- what is written ---

TITLES = {number.name: number.title for score in SCORES.builtin.values() for number in score.numbers}


def write_results(lines: Sequence[dict[str, Any]], name: str, folder: Path = RESULTS) -> None:
    """The scores of each row, and the differences of pairs, as two files."""
    scores = [row for line in lines for row in score_rows(line)]
    says = {line["name"]: line["says"] for line in lines}
    differences = [
        {
            "row": line["says"],
            "minus": f"{says[second]}{', trained again' if pair['again'] else ''}",
            "split": split,
            "score": TITLES[number],
            **{title: "" if math.isnan(one[name]) else f"{one[name]:+.3f}" for name, title in DIFFERENCE.items()},
            "p": f"{one['p']:.3f}",
        }
        for line in lines
        for second, pair in line["pairs"].items()
        for split, numbers in pair["differences"].items()
        for number, one in numbers.items()
        if number in COMPARED
    ]
    for kind, rows in (("scores", scores), ("differences", differences)):
        heads = list(dict.fromkeys(head for row in rows for head in row))
        with (folder / f"{name}-{kind}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, heads, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def score_rows(line: Mapping[str, Any]) -> list[dict[str, str]]:
    """A line for each split, and for the captions of each stage before the last."""
    tried = ", ".join(f"{rate:g}: {value:.4f}" for rate, value in sorted(line["tried"].items()))
    minutes = ", ".join(f"{minutes:.0f} ({device})" for device, minutes in line["device_minutes"].items())
    rows = []
    for split, scores in line["scores"].items():
        stages = line["stages"].get(split, [])
        for number, stage in enumerate(stages):
            title = f"{line['says']}: stage {number} of 0 to {len(stages)}"
            rows.append({"row": title, "split": split, **cells(stage)})
        more = {**line["reads"][split], **(line["attention"] if split == "test" else {})}
        own = {"row": line["says"], "split": split, "seeds": str(len(line["seeds"])), **cells(scores), **cells(more)}
        devices = ", ".join(line["devices"])
        taken = {"learning rate": f"{line['learning_rate']:g}", "rates tried": tried, "tried by": line["tried_by"]}
        rows.append({**own, **taken, "device": devices, "minutes": minutes})
        if split in line["undivided"]:
            title = f"{line['says']}: a beam not divided by the length, as the paper's"
            rows.append({"row": title, "split": split, **line["undivided"][split]})
    return rows


def cells(values: Mapping[str, dict[str, float | None]]) -> dict[str, str]:
    return {TITLES.get(name, name): cell(value) for name, value in values.items()}


def cell(value: dict[str, float | None]) -> str:
    if value["mean"] is None:
        return ""
    return f"{value['mean']:.3f}" + ("" if value["spread"] is None else f" ± {value['spread']:.3f}")


# --- the command ---


def command(
    description: str | None,
    rows: Sequence[Row],
    *,
    known: Sequence[Row] = (),
    pairs: Sequence[tuple[str, str]],
    name: str,
    metrics: Sequence[str] | None = None,
    bench_type: type[Bench] = Scenes,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run what is missing of the rows, write their scores and the differences of pairs; the exit status.

    `known` has further rows, which some of them start from or take learning rates of."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(f"runs/{bench_type.name}"), help="the folder of the runs")
    parser.add_argument("--rows", default=",".join(row.name for row in rows), help="their names, parted by commas")
    about = "the folder of NAME-scores.csv, NAME-differences.csv"
    parser.add_argument("--results", type=Path, default=RESULTS, help=about)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for every recipe, such as training.epochs=3")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    for setting, usual in settings_of(bench_type).items():
        option = "--" + setting.replace("_", "-")
        parser.add_argument(option, type=type(usual), default=usual, help="see the head of benchmarks/study.py")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, each on one core")
    parser.add_argument("--name", default=name, help="of the two files")
    parser.add_argument("--summary-only", action="store_true", help="train nothing; score what is done")
    given = parser.parse_args(arguments)
    by_name = {row.name: row for row in [*known, *rows]}
    wanted = given.rows.split(",")

    def run() -> None:
        if unknown := [name for name in wanted if name not in by_name]:
            raise UsageError(f"--rows: there is no {', '.join(unknown)}; known are {', '.join(by_name)}.")
        chosen = [by_name[name] for name in wanted]
        settings = {setting: getattr(given, setting) for setting in settings_of(bench_type)}
        bench = bench_type(given.out, tuple(given.overrides), by_name, **settings)
        if not given.summary_only:
            for row in with_trials(bench, chosen):
                begun = row.start is None or row.start in wanted or (bench.out / "runs" / row.start / "0").exists()
                if not begun:
                    raise UsageError(f"--rows: {row.name} starts from {row.start}; name that too.")
            run_all(bench, chosen, seeds=given.seeds, jobs=given.jobs)
        lines = summarise_runs(bench, chosen, pairs, metrics or bench.metrics, given.seeds)
        if not lines:
            raise DataError(f"{bench.out} has no finished run of {', '.join(wanted)}.")
        write_results(lines, given.name, given.results)

    try:
        run()
    except ShowtellError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    return 0
