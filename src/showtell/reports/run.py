"""A run folder, finished or not, read for a report: recipe, log, progress, and the scores of its checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from showtell.captioners import Captioner
from showtell.captioners.photos import display_name
from showtell.config import differences, flat
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError, shorten, summarise
from showtell.evaluation import Evaluation, evaluate
from showtell.features.store import FeatureStore
from showtell.files import read_json, read_log, read_text
from showtell.hub import SETTINGS
from showtell.recipes import Published
from showtell.scores import Interval, diagnose, image_facts, score
from showtell.scores.files import training_captions

RECIPE, LOG = "recipe.yaml", "log.jsonl"
STATE = Path("last", "training", "state.json")
_DAMAGE = (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
# settings that say where, not how
_NO_METHOD = {"data.path", "data.features", "training.recipe", "training.seed", "training.start_from"}


@dataclass(frozen=True)
class Run:
    """The files of a run folder, but for weights."""

    folder: Path
    recipe: Mapping[str, Any]  # resolved
    text: str  # of recipe.yaml
    log: tuple[Mapping[str, Any], ...]  # the lines of log.jsonl
    saved: Mapping[str, Any] = field(default_factory=dict)  # progress in last/: step, best score and epoch, early stop

    @property
    def title(self) -> str:
        """The folder's name, behind the name of its parent if it is a number (a seed) or just "run"."""
        folder = self.folder.resolve()
        is_generic = folder.name.isdecimal() or folder.name == "run"
        return display_name(f"{folder.parent.name}/{folder.name}" if is_generic else folder.name)

    @property
    def checkpoint(self) -> Path | None:
        """best/, or else last/; None before the first checkpoint."""
        folders = (self.folder / name for name in ("best", "last"))
        return next((folder for folder in folders if (folder / SETTINGS).is_file()), None)

    @property
    def validations(self) -> list[Mapping[str, Any]]:
        """Lines of the log."""
        return [line for line in self.log if "validation" in line]

    @cached_property
    def best(self) -> str | None:
        """The validation score of best/ and its epoch."""
        name = self.recipe["training"]["selection_metric"]
        scores = [(line["validation"][name], line["epoch"]) for line in self.validations if name in line["validation"]]
        value, epoch = max(scores, key=lambda pair: pair[0], default=(None, None))
        if self.saved.get("best") is not None:
            value, epoch = self.saved["best"], self.saved["best_epoch"]
        return None if value is None else f"{name} {value:.4f} in epoch {epoch}"

    @cached_property
    def progress(self) -> str:
        """A sentence on how far it has come."""
        epochs = self.recipe["training"]["epochs"]
        step = max([self.saved.get("step", 0), *(line["step"] for line in self.log)])  # not every step is logged
        done = self.validations[-1]["epoch"] if self.validations else 0
        if done == epochs or (self.recipe["data"]["validation_split"] is None and (self.folder / "best").is_dir()):
            return f"finished: {epochs} epochs, {step} steps"
        if self.saved.get("stopped"):
            return f"stopped early: {done} of {epochs} epochs, {step} steps"
        where = f"{step} steps, in epoch {self.log[-1]['epoch']} of {epochs}" if self.log else "no step is logged yet"
        return f"not finished: {where}; it is still running, or was interrupted and can be resumed with --resume"

    @cached_property
    def warnings(self) -> list[str]:
        """The warnings of training, each once, with its epochs."""
        epochs: dict[str, dict[str, None]] = {}
        for line in self.log:
            for sentence in line.get("warnings", ()):
                epochs.setdefault(sentence, {})[f"epoch {line['epoch']}"] = None
        return [f"{summarise(numbers)}: {sentence}" for sentence, numbers in epochs.items()]


def read_run(folder: Path) -> Run:
    """Read a run folder without its weights; a DataError if it is none, or one of its files is damaged."""
    missing = [name for name in (RECIPE, LOG) if not (folder / name).is_file()]
    if missing:
        is_run = all((folder.parent / name).is_file() for name in (RECIPE, LOG))
        hint = f"name the run itself: {folder.parent}" if is_run else "showtell train writes one"
        raise DataError(f"{folder} is no run folder: there is no {' and no '.join(missing)} in it; {hint}.")
    text, log = read_text(folder / RECIPE), read_log(folder / LOG)
    with damage_refused(folder):
        saved = read_json(folder / STATE)["progress"] if (folder / STATE).is_file() else {}
        run = Run(folder, yaml.safe_load(text), text, tuple(log), saved)
        _ = run.progress, run.best, run.warnings, run.recipe["data"]["path"]  # what a report needs
    return run


@contextmanager
def damage_refused(folder: Path) -> Iterator[None]:
    """Inside the block, what a run's files hold of a wrong structure or type is a DataError."""
    try:
        yield
    except _DAMAGE as error:
        reason = shorten(" ".join(str(error).split()))
        raise DataError(
            f"{folder} is damaged: training wrote its recipe, log or state otherwise ({reason})."
        ) from error


@dataclass(frozen=True)
class ScoreCard:
    """The scores of a run's checkpoint on a split."""

    split: str
    search: str  # description of the search
    report: Evaluation
    bounds: Mapping[str, Interval]
    rates: Mapping[str, float] = field(default_factory=dict)  # of `scores.diagnose`
    paper: Paper | None = None
    in_unit_of_paper: Mapping[str, float | None] = field(default_factory=dict)  # the scores that the paper has, too


@dataclass(frozen=True)
class Paper:
    """The published row of a run's recipe."""

    published: Published
    recipe: Mapping[str, Any]  # the paper's, resolved
    ours: Mapping[str, Any]  # the run's, resolved

    @property
    def differs(self) -> dict[str, tuple[Any, Any]]:
        """The settings in which the run differs: the paper's value and the run's."""
        changed = differences(flat(dict(self.recipe)), flat(dict(self.ours)))
        return {key: values for key, values in changed.items() if key not in _NO_METHOD}


def score_run(
    captioner: Captioner,
    dataset: CaptionDataset,
    split: str,
    *,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
    paper: Paper | None = None,
) -> ScoreCard:
    """Caption a split by the captioner's default settings and score it, also in the unit of a paper."""
    settings = captioner.settings(num_return_sequences=1)
    report = evaluate(captioner, dataset, split, store=store, progress=progress)
    captions = {image: caption.text for image, caption in report.captions.items()}
    search = settings.kind if settings.num_beams == 1 else f"{settings.kind} of {settings.num_beams}"
    rates = diagnose(list(captions.values()), training=training_captions(dataset))
    percent: dict[str, float | None] = {}
    if paper is not None:
        known = report.scores | score(captions, image_facts(dataset[split]), "bleu_no_bp").scores
        values = {name: known.get(name) for name in paper.published.scores}
        percent = {name: None if value is None else 100 * value for name, value in values.items()}
    return ScoreCard(split, search, report, report.intervals(), rates, paper, percent)
